package server

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// unreadable is how net/http's answer begins to a request that it can't read. It
// gives it by itself and tells nobody, and a client that gets it stops for good.
//
// It gives it to a request, too, whose line was cut in two by read_header_timeout:
// bufio.Reader.ReadLine returns what has come of a line, and not the error. A client
// needn't be slow for that. net/http reads the first bytes by themselves, to tell
// HTTP/2, so the time may pass between two reads of what has come at once: after the
// process was stopped, or where it gets no processor time. Such a request isn't
// wrong; its connection is closed without a word, as those are whose header takes
// too long behind the first line.
const unreadable = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// oddities say that requests couldn't be read, once a minute at most: anybody can
// send such. Safe for concurrent use.
type oddities struct {
	log  *slog.Logger
	last atomic.Int64 // Unix nanoseconds
}

// say is for whoever reads c.
func (o *oddities) say(c *limitedConn) {
	last, now := o.last.Load(), time.Now()
	if now.Sub(time.Unix(0, last)) < time.Minute || !o.last.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	o.log.Warn("a request couldn't be read, and was answered 400: a client that isn't one, or a box in between that cuts requests in two",
		"from", c.RemoteAddr().String(), "bytes", c.read, "then", c.failed)
}
