package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startRedis starts a redis-server that stores nothing on disk, as all
// contenders' does here.
func startRedis(l *lab) (addr string, p *process, err error) {
	addr, err = freeAddr()
	if err != nil {
		return "", nil, err
	}
	p, err = l.start("redis", "redis-server", "--port", portOf(addr), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", l.dir)
	if err != nil {
		return "", nil, err
	}
	return addr, p, l.ready(p, func() error {
		_, err := askRedis(addr, "PING")
		return err
	})
}

// askRedis sends one command over a connection of its own and returns an
// answer that is one string.
func askRedis(addr string, command ...string) (string, error) {
	conn, err := dialRedis(addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	if err := conn.send(command...); err != nil {
		return "", err
	}
	var answer string
	err = conn.read(func(s []byte) { answer = string(s) })
	return answer, err
}

// A redisConn speaks as much of RESP as a benchmark needs. Not for concurrent use.
type redisConn struct {
	net.Conn
	in   *bufio.Reader
	text []byte // of the string that is being read
}

func dialRedis(addr string) (*redisConn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	return &redisConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (c *redisConn) send(command ...string) error {
	_, err := c.Write(encodeCommand(command))
	return err
}

func encodeCommand(command []string) []byte {
	return appendWords(fmt.Appendf(nil, "*%d\r\n", len(command)), command)
}

func appendWords(b []byte, command []string) []byte {
	for _, word := range command {
		b = strconv.AppendInt(append(b, '$'), int64(len(word)), 10)
		b = append(append(append(b, "\r\n"...), word...), "\r\n"...)
	}
	return b
}

// read reads one answer and shows each string in it, in order and valid during
// the call; an error that Redis answers is returned.
func (c *redisConn) read(show func([]byte)) error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 3 {
		return fmt.Errorf("redis answered %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', ':':
		show(rest)
		return nil
	case '-':
		return errors.New("redis answered " + string(rest))
	}
	n, err := strconv.Atoi(string(rest))
	switch {
	case err != nil || kind != '$' && kind != '*':
		return fmt.Errorf("redis answered %q", line)
	case kind == '$' && n >= 0:
		return c.readString(n, show)
	case kind == '*':
		for range n {
			if err := c.read(show); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *redisConn) readString(n int, show func([]byte)) error {
	c.text = slices.Grow(c.text[:0], n+2)[:n+2]
	if _, err := io.ReadFull(c.in, c.text); err != nil {
		return err
	}
	show(c.text[:n])
	return nil
}

// redisFigures are numbers of INFO that a table shows the growth of.
func redisFigures(addr string) (values, error) {
	info, err := askRedis(addr, "INFO", "all")
	if err != nil {
		return nil, err
	}
	v := values{}
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if command, ok := strings.CutPrefix(name, "cmdstat_"); ok {
			var calls, usec float64
			if _, err := fmt.Sscanf(text, "calls=%f,usec=%f,", &calls, &usec); err != nil {
				return nil, fmt.Errorf("redis INFO %s: %w", name, err)
			}
			v["redis."+command+".calls"], v["redis."+command+".usec"] = calls, usec
			continue
		}
		switch name {
		case "total_commands_processed", "used_cpu_user", "used_cpu_sys", "used_memory":
			if v["redis."+name], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("redis INFO %s: %w", name, err)
			}
		}
	}
	return v, nil
}
