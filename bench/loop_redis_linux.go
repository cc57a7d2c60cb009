package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"syscall"
)

// A redisKeeper appends in a pipeline with a read of what was appended.
type redisKeeper struct {
	fd              int
	positions       [logShards]string
	gathered, asked []order // for the next round trip; of the one under way
	touched         []int   // shards of gathered
	request, answer []byte  // to Redis; from Redis
	in              []byte  // scratch
}

func keepInRedis(addr string) (*redisKeeper, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	k := &redisKeeper{fd: fd}
	for i := range k.positions {
		k.positions[i] = "0-0"
	}
	port, _ := strconv.Atoi(portOf(addr))
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		k.close()
		return nil, err
	}
	return k, syscall.SetNonblock(fd, true)
}

func (k *redisKeeper) descriptor() int { return k.fd }

func (k *redisKeeper) close() { _ = syscall.Close(k.fd) }

func (k *redisKeeper) gather(o order, device, payload []byte) {
	k.request = appendWords(append(k.request, "*9\r\n"...),
		[]string{"XADD", keyPrefix + strconv.Itoa(o.shard), "*", "dev", string(device), "type", "load", "payload", string(payload)})
	k.gathered = append(k.gathered, o)
	if !slices.Contains(k.touched, o.shard) {
		k.touched = append(k.touched, o.shard)
	}
}

// flush sends what was gathered, unless a round trip is under way.
func (k *redisKeeper) flush() error {
	if len(k.asked) > 0 || len(k.gathered) == 0 {
		return nil
	}
	words := []string{"XREAD", "COUNT", "1000", "STREAMS"}
	for _, s := range k.touched {
		words = append(words, keyPrefix+strconv.Itoa(s))
	}
	for _, s := range k.touched {
		words = append(words, k.positions[s])
	}
	k.request = appendWords(fmt.Appendf(k.request, "*%d\r\n", len(words)), words)
	k.asked, k.gathered = k.gathered, k.asked[:0]
	k.touched = k.touched[:0]
	for sent := 0; sent < len(k.request); {
		n, err := syscall.Write(k.fd, k.request[sent:])
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		sent += max(n, 0)
	}
	k.request = k.request[:0]
	return nil
}

// hear reads from Redis, and ends the round trip when all of it is there.
func (k *redisKeeper) hear(answer func(order, []byte), deliver func(delivery)) error {
	chunk := room(&k.in)
	n, err := syscall.Read(k.fd, chunk)
	if n == 0 {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) {
			return nil
		}
		return err
	}
	k.answer = append(k.answer, chunk[:n]...)
	r := reply{rest: k.answer}
	ids := make([][]byte, 0, len(k.asked))
	for range k.asked {
		id, ok := r.text()
		if !ok {
			return nil
		}
		ids = append(ids, id)
	}
	entries := make([]delivery, 0, len(k.asked))
	if !r.streams(func(d delivery) { entries = append(entries, d) }) {
		return nil
	}
	for i, o := range k.asked {
		answer(o, ids[i])
	}
	for _, d := range entries {
		k.positions[d.shard] = string(d.id)
		deliver(d)
	}
	k.asked, k.answer = k.asked[:0], append(k.answer[:0], r.rest...)
	return nil
}

// A reply is what Redis has said, to be read from the front.
type reply struct{ rest []byte }

// header reads a line that begins with kind and a number; -1 is a null, too.
func (r *reply) header(kind byte) (n int, ok bool) {
	line, rest, ok := bytes.Cut(r.rest, []byte("\r\n"))
	if !ok || len(line) < 2 {
		return 0, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || line[0] != kind && n >= 0 {
		panic(fmt.Sprintf("redis answered %q", line)) // this loop checks nothing
	}
	r.rest = rest
	return n, true
}

func (r *reply) text() ([]byte, bool) {
	n, ok := r.header('$')
	if !ok || len(r.rest) < n+2 {
		return nil, false
	}
	text := r.rest[:n]
	r.rest = r.rest[n+2:]
	return text, true
}

// streams reads what XREAD answers, and shows each entry.
func (r *reply) streams(show func(delivery)) bool {
	streams, ok := r.header('*')
	for i := 0; ok && i < streams; i++ {
		var key []byte
		var entries int
		_, ok = r.header('*')
		if ok {
			key, ok = r.text()
		}
		if ok {
			entries, ok = r.header('*')
		}
		for e := 0; ok && e < entries; e++ {
			var d delivery
			if d, ok = r.entry(); ok {
				d.shard = shardOf(key)
				show(d)
			}
		}
	}
	return ok
}

// entry reads an ID, and the fields in the order in which they were appended.
func (r *reply) entry() (d delivery, ok bool) {
	var words [7][]byte // ID, dev, …, type, …, payload, …
	if _, ok = r.header('*'); !ok {
		return d, false
	}
	for i := range words {
		if i == 1 {
			if _, ok = r.header('*'); !ok {
				return d, false
			}
		}
		if words[i], ok = r.text(); !ok {
			return d, false
		}
	}
	return delivery{id: words[0], device: words[2], payload: words[6]}, true
}
