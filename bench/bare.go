package main

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// logShards is the number of shards of a log that is created with the defaults.
const logShards = 64

// readBare starts readers of a log that do what a gateway's tail would do
// without pacing: one blocking read over all shards, answered with the next
// event, and the next after a rest, if any. They run in this process until the
// lab ends.
func readBare(l *lab, redis string, readers int, rest time.Duration) error {
	var running sync.WaitGroup
	for range readers {
		conn, err := dialRedis(redis)
		if err != nil {
			return err
		}
		r := newBareReader(conn)
		r.rest = rest
		running.Go(r.run)
		l.closers = append(l.closers, func() {
			conn.Close()
			running.Wait()
		})
	}
	return nil
}

// A bareReader knows how far it has read each shard. It costs as little as it
// can: it stands for a gateway on a machine of its own.
type bareReader struct {
	conn      *redisConn
	command   []byte // up to the positions
	positions []string
	request   []byte        // of the last step, for its room
	rest      time.Duration // between two steps
}

// keyPrefix is what the keys of a log with the defaults begin with.
const keyPrefix = "pos-ev:"

func newBareReader(conn *redisConn) *bareReader {
	command := []string{"XREAD", "BLOCK", "1000", "STREAMS"}
	r := &bareReader{conn: conn}
	for shard := range logShards {
		command = append(command, keyPrefix+strconv.Itoa(shard))
		r.positions = append(r.positions, "0-0")
	}
	r.command = appendWords(fmt.Appendf(nil, "*%d\r\n", len(command)+logShards), command)
	return r
}

// run reads until the connection is closed.
func (r *bareReader) run() {
	for r.step() == nil {
		time.Sleep(r.rest) //nolint:forbidigo // it is what is measured
	}
}

// step asks for what comes after the positions, waits for it, at most a
// second, and moves on.
func (r *bareReader) step() error {
	r.request = appendWords(append(r.request[:0], r.command...), r.positions)
	if _, err := r.conn.Write(r.request); err != nil {
		return err
	}
	shard := -1
	return r.conn.read(func(s []byte) {
		// An answer is, for each stream: key, then for each entry its ID and
		// fields. Only a key is one of ours, only an ID is digits-digits.
		switch {
		case bytes.HasPrefix(s, []byte(keyPrefix)):
			shard = shardOf(s)
		case shard >= 0 && isEntryID(s):
			r.positions[shard] = string(s)
		}
	})
}

// shardOf is the number in a key, or -1.
func shardOf(key []byte) int {
	n, err := strconv.Atoi(string(key[len(keyPrefix):]))
	if err != nil || n < 0 || n >= logShards {
		return -1
	}
	return n
}

func isEntryID(s []byte) bool {
	dashes := 0
	for _, c := range s {
		switch {
		case c == '-':
			dashes++
		case c < '0' || c > '9':
			return false
		}
	}
	return dashes == 1 && len(s) > 13
}
