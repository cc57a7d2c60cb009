package intake

import (
	"io"
	"net/http"
	"time"
)

// A Body ends a read of a request's body when no byte comes for a while.
// The server can't do it: its ReadTimeout would count from the first byte and
// cut long batches.
type Body struct {
	body    io.Reader
	Conn    *http.ResponseController // of the request
	timeout time.Duration
	renew   time.Time // when a read has to move the deadline
}

// NewBody starts the time-out at once, so that it also bounds the server's
// own reading of what a refused request leaves unread.
func NewBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) *Body {
	b := &Body{body: r.Body, Conn: http.NewResponseController(w), timeout: timeout}
	if r.Body != http.NoBody {
		b.expect(time.Now())
	}
	return b
}

// expect gives the client an eighth more than its time, so that not every read
// of a body that comes quickly has to move the deadline, which costs a timer.
func (b *Body) expect(now time.Time) {
	slack := b.timeout / 8
	b.renew = now.Add(slack)
	// Where the connection can't do deadlines (in tests), it can't be slow.
	_ = b.Conn.SetReadDeadline(now.Add(b.timeout + slack))
}

// Read waits for the next bytes. Its error is os.ErrDeadlineExceeded when none
// came in time.
func (b *Body) Read(p []byte) (int, error) {
	if now := time.Now(); now.After(b.renew) {
		b.expect(now) // the server takes it back at the end of the body
	}
	return b.body.Read(p)
}
