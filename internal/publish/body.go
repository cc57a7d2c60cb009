package publish

import (
	"io"
	"net/http"
	"time"
)

// A slowBody ends a read of a request's body when no byte comes for a while.
// The server can't do it: its ReadTimeout would count from the first byte and
// cut long batches.
type slowBody struct {
	body    io.Reader
	conn    *http.ResponseController
	timeout time.Duration
}

// newSlowBody starts the time-out at once, so that it also bounds the server's
// own reading of what a refused request leaves unread.
func newSlowBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) *slowBody {
	b := &slowBody{body: r.Body, conn: http.NewResponseController(w), timeout: timeout}
	if r.Body != http.NoBody {
		b.expect()
	}
	return b
}

func (b *slowBody) expect() {
	// Where the connection can't do deadlines (in tests), it can't be slow.
	_ = b.conn.SetReadDeadline(time.Now().Add(b.timeout))
}

// Read waits for the next bytes. Its error is os.ErrDeadlineExceeded when none
// came in time.
func (b *slowBody) Read(p []byte) (int, error) {
	b.expect() // the server takes it back at the end of the body
	return b.body.Read(p)
}
