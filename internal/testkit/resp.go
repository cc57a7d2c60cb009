package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// Do sends one command on a connection of its own, as the default user and
// without TLS, and returns the reply: string, int64, nil or []any. An error
// reply fails the test. It is a second pair of eyes: it shares no code with
// the client under test.
func (r *Redis) Do(args ...string) any {
	r.tb.Helper()
	reply, err := r.Try(args...)
	if err != nil {
		r.tb.Fatalf("redis %q: %v", args, err)
	}
	return reply
}

// Try is Do for a command that may fail.
func (r *Redis) Try(args ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", r.Addr(), 20*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(appendCommand(nil, args)); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(conn))
}

// A Conn is one connection to a server, as the default user, for commands whose
// replies may be waited for later.
type Conn struct {
	tb   testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// Dial makes a connection that is closed when the test ends.
func (r *Redis) Dial() *Conn {
	r.tb.Helper()
	conn, err := net.DialTimeout("tcp", r.Addr(), 20*time.Second)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { conn.Close() })
	return &Conn{r.tb, conn, bufio.NewReader(conn)}
}

// Send sends a command and doesn't wait: a frozen server's kernel takes it.
func (c *Conn) Send(args ...string) {
	c.tb.Helper()
	if _, err := c.conn.Write(appendCommand(nil, args)); err != nil {
		c.tb.Fatal(err)
	}
}

// Reply waits for the next reply.
func (c *Conn) Reply() (any, error) {
	c.tb.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.tb.Fatal(err)
	}
	return readReply(c.in)
}

// Pipe sends many commands at once and returns their replies; an error reply
// is an error in its place.
func (r *Redis) Pipe(commands ...[]string) []any {
	r.tb.Helper()
	conn, err := net.DialTimeout("tcp", r.Addr(), 20*time.Second)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer conn.Close()
	go func() {
		w := bufio.NewWriter(conn)
		for _, args := range commands {
			_, _ = w.Write(appendCommand(nil, args))
		}
		_ = w.Flush()
	}()
	replies := make([]any, len(commands))
	in := bufio.NewReader(conn)
	for i := range replies {
		reply, err := readReply(in)
		if err != nil {
			reply = err
		}
		replies[i] = reply
	}
	return replies
}

// Monitor shows every command that the server receives from now on, as MONITOR
// prints them, to each until stop is called.
func (r *Redis) Monitor(each func(line string)) (stop func()) {
	r.tb.Helper()
	conn, err := net.DialTimeout("tcp", r.Addr(), 20*time.Second)
	if err != nil {
		r.tb.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if _, err := conn.Write(appendCommand(nil, []string{"MONITOR"})); err != nil {
		r.tb.Fatal(err)
	}
	if _, err := readReply(in); err != nil {
		r.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			each(line)
		}
	}()
	return func() {
		_ = conn.Close()
		<-done
	}
}

func appendCommand(dst []byte, args []string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(args))
	for _, a := range args {
		dst = fmt.Appendf(dst, "$%d\r\n%s\r\n", len(a), a)
	}
	return dst
}

// readReply reads RESP2: https://redis.io/docs/latest/develop/reference/protocol-spec/
func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("short reply %q", line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, errors.New(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("odd reply %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		bulk := make([]byte, n+2)
		if _, err := io.ReadFull(in, bulk); err != nil {
			return nil, err
		}
		return string(bulk[:n]), nil
	case kind == '*':
		items := make([]any, n)
		for i := range items {
			if items[i], err = readReply(in); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return nil, fmt.Errorf("odd reply %q", line)
}
