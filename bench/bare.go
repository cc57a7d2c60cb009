package main

import (
	"fmt"
	"strings"
	"sync"
)

// logShards is the number of shards of a log that is created with the defaults.
const logShards = 64

// readBare starts readers of a log that do what a gateway's tail would do
// without pacing: one blocking read over all shards, answered with the next
// event, and at once the next. They run in this process until the lab ends.
func readBare(l *lab, redis string, readers int) error {
	var running sync.WaitGroup
	for range readers {
		conn, err := dialRedis(redis)
		if err != nil {
			return err
		}
		r := newBareReader(conn)
		running.Go(r.run)
		l.closers = append(l.closers, func() {
			conn.Close()
			running.Wait()
		})
	}
	return nil
}

// A bareReader knows how far it has read each shard.
type bareReader struct {
	conn      *redisConn
	keys      []string
	positions []string
}

func newBareReader(conn *redisConn) *bareReader {
	r := &bareReader{conn: conn}
	for shard := range logShards {
		r.keys = append(r.keys, fmt.Sprintf("pos-ev:%d", shard))
		r.positions = append(r.positions, "0-0")
	}
	return r
}

// run reads until the connection is closed.
func (r *bareReader) run() {
	for {
		command := append([]string{"XREAD", "BLOCK", "1000", "STREAMS"}, r.keys...)
		if r.conn.send(append(command, r.positions...)...) != nil {
			return
		}
		shard := -1
		err := r.conn.read(func(s []byte) {
			// An answer is, for each stream: key, then for each entry its ID and
			// fields. Only a key is one of ours, only an ID is digits-digits.
			switch {
			case strings.HasPrefix(string(s), "pos-ev:"):
				shard = r.index(string(s))
			case shard >= 0 && isEntryID(s):
				r.positions[shard] = string(s)
			}
		})
		if err != nil {
			return
		}
	}
}

func (r *bareReader) index(key string) int {
	for i, k := range r.keys {
		if k == key {
			return i
		}
	}
	return -1
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
