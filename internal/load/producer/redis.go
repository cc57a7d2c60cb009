package producer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"downlink/internal/event"
)

// A redisLog appends to a log on Redis as any producer may: with XADD. It
// speaks as much of Redis's protocol as that needs.
type redisLog struct {
	link
	prefix string
	shards int
	hello  [][]string // commands after connecting
	r      *bufio.Reader
	out    []byte
	number []byte
}

// NewRedis appends to a log on one Redis server.
func NewRedis(address, prefix string, shards int) (Sender, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "" || strings.Contains(u.Host, ",") {
		return nil, fmt.Errorf("--publish-log takes one server, as redis://127.0.0.1:6379")
	}
	if shards < 1 {
		return nil, fmt.Errorf("--shards must be 1 or more")
	}
	l := &redisLog{link: newLink(u, "6379", u.Scheme == "rediss"), prefix: prefix, shards: shards}
	if password, ok := u.User.Password(); ok {
		user := u.User.Username()
		if user == "" {
			user = "default"
		}
		l.hello = append(l.hello, []string{"AUTH", user, password})
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if _, err := strconv.Atoi(db); err != nil {
			return nil, fmt.Errorf("--publish-log: the path must be the number of a database")
		}
		l.hello = append(l.hello, []string{"SELECT", db})
	}
	return l, nil
}

// Publish implements Sender: all events in one pipeline, broadcasts to every shard.
func (l *redisLog) Publish(ctx context.Context, events []Event, outcomes []Outcome) error {
	fresh, err := l.open(ctx)
	if err == nil && fresh {
		l.r = bufio.NewReaderSize(l.conn, 16<<10)
		err = l.greet()
	}
	if err != nil {
		l.drop()
		setAll(outcomes, Refused)
		return err
	}
	l.out = l.out[:0]
	for _, e := range events {
		for shard := l.firstShard(e); shard < l.endShard(e); shard++ {
			l.add(shard, e)
		}
	}
	setAll(outcomes, Unknown)
	_ = l.conn.SetDeadline(time.Now().Add(requestTimeout)) // a failed one shows in the next call
	if _, err := l.conn.Write(l.out); err != nil {
		l.drop()
		return fmt.Errorf("publishing to %s: %w", l.address, err)
	}
	return l.readAll(events, outcomes)
}

// readAll reads a reply for each append.
func (l *redisLog) readAll(events []Event, outcomes []Outcome) (first error) {
	for i, e := range events {
		outcome := Accepted
		for shard := l.firstShard(e); shard < l.endShard(e); shard++ {
			said, err := l.reply()
			if err != nil {
				l.drop()
				if first == nil {
					first = fmt.Errorf("publishing to %s: %w", l.address, err)
				}
				return first
			}
			if said != "" {
				outcome = Refused
				if first == nil {
					first = fmt.Errorf("redis refused to append: %s", said)
				}
			}
		}
		outcomes[i] = outcome
	}
	return first
}

func (l *redisLog) firstShard(e Event) int {
	if event.ToAll(e.Device) {
		return 0
	}
	return event.Shard(e.Device, l.shards)
}

func (l *redisLog) endShard(e Event) int {
	if event.ToAll(e.Device) {
		return l.shards
	}
	return l.firstShard(e) + 1
}

// add appends one XADD to the pipeline.
func (l *redisLog) add(shard int, e Event) {
	l.out = append(l.out, "*9\r\n$4\r\nXADD\r\n"...)
	l.number = strconv.AppendInt(append(append(l.number[:0], l.prefix...), ':'), int64(shard), 10)
	l.bulk(string(l.number))
	l.out = append(l.out, "$1\r\n*\r\n$3\r\ndev\r\n"...)
	l.bulk(e.Device)
	l.out = append(l.out, "$4\r\ntype\r\n$4\r\nload\r\n$7\r\npayload\r\n"...)
	l.out = append(strconv.AppendInt(append(l.out, '$'), int64(len(e.Payload)), 10), "\r\n"...)
	l.out = append(append(l.out, e.Payload...), "\r\n"...)
}

func (l *redisLog) bulk(text string) {
	l.out = append(strconv.AppendInt(append(l.out, '$'), int64(len(text)), 10), "\r\n"...)
	l.out = append(append(l.out, text...), "\r\n"...)
}

// greet authenticates and selects. An error doesn't repeat what was sent.
func (l *redisLog) greet() error {
	_ = l.conn.SetDeadline(time.Now().Add(requestTimeout))
	for _, command := range l.hello {
		l.out = append(strconv.AppendInt(append(l.out[:0], '*'), int64(len(command)), 10), "\r\n"...)
		for _, word := range command {
			l.bulk(word)
		}
		if _, err := l.conn.Write(l.out); err != nil {
			return fmt.Errorf("publishing to %s: %w", l.address, err)
		}
		said, err := l.reply()
		if err != nil {
			return fmt.Errorf("publishing to %s: %w", l.address, err)
		}
		if said != "" {
			return fmt.Errorf("redis at %s refused %s: %s", l.address, command[0], said)
		}
	}
	return nil
}

// reply reads one simple reply; said is what an error says.
func (l *redisLog) reply() (said string, err error) {
	line, err := l.r.ReadSlice('\n')
	if err != nil {
		return "", noEOF(err)
	}
	text := strings.TrimRight(string(line[1:]), "\r\n")
	switch line[0] {
	case '+', ':':
		return "", nil
	case '-':
		return text, nil
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 1<<20 {
			return "", fmt.Errorf("a reply of %q can't be read", text)
		}
		_, err = l.r.Discard(n + 2)
		return "", noEOF(err)
	}
	return "", fmt.Errorf("what answers is no Redis: %q", line[:min(len(line), 40)])
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errNotAnswered
	}
	return err
}

// Close ends the connection.
func (l *redisLog) Close() { l.drop() }
