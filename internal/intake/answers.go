package intake

import (
	"errors"
	"net/http"
	"time"
)

// queuedAnswers is how many pieces of answer may wait for a client that sends
// without reading. How much is in a piece is for whoever sends it to bound.
const queuedAnswers = 64

// Answers writes a batch's answer beside the reading of its body. A client may
// send everything before it reads anything: were both done in one goroutine,
// either side would wait for the other once the sockets are full. Here the
// queue takes what comes, up to a bound, and then the batch ends.
type Answers struct {
	// Set at construction.
	w       http.ResponseWriter
	conn    *http.ResponseController
	timeout time.Duration
	queue   chan []byte
	failed  chan struct{} // closed at the first error of a write
	ended   chan struct{}

	err error // owned by the writer until failed or ended is closed
}

// StartAnswers begins to write to w, whose connection is conn. A client that takes
// nothing for timeout ends it. Close must be called.
func StartAnswers(w http.ResponseWriter, conn *http.ResponseController, timeout time.Duration) *Answers {
	a := &Answers{
		w: w, conn: conn, timeout: timeout,
		queue:  make(chan []byte, queuedAnswers),
		failed: make(chan struct{}),
		ended:  make(chan struct{}),
	}
	go a.write()
	return a
}

// Send queues a piece. It waits while the queue is full; the writer's time-out
// ends that if the client takes nothing. It fails when the writer has failed.
func (a *Answers) Send(piece []byte) error {
	select {
	case <-a.failed:
		return a.err
	case a.queue <- piece:
		return nil
	}
}

// Close waits until everything is written, and says whether it was.
func (a *Answers) Close() error {
	close(a.queue)
	<-a.ended
	return a.err
}

func (a *Answers) write() {
	defer close(a.ended)
	for piece := range a.queue {
		if a.err != nil {
			continue
		}
		if a.err = a.writePiece(piece); a.err != nil {
			close(a.failed)
		}
	}
	_ = a.conn.SetWriteDeadline(time.Time{}) // the connection may serve another request
}

func (a *Answers) writePiece(piece []byte) error {
	_ = a.conn.SetWriteDeadline(time.Now().Add(a.timeout)) // where there are no deadlines, nothing is slow
	if _, err := a.w.Write(piece); err != nil {
		return err
	}
	if err := a.conn.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
