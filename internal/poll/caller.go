package poll

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/door"
	"downlink/internal/session"
)

const (
	// defaultWait and maxWait bound how long an answer waits for its first
	// event. Middle boxes give up after a minute.
	defaultWait = 30 * time.Second
	maxWait     = 60 * time.Second
	// moment is how long an answer waits for more once something is there: what
	// was published together comes together.
	moment = 5 * time.Millisecond
	// patience is how long an answer without events waits, beyond what was asked
	// for, until the session has read what it missed: a client that never waits
	// would else get nothing for ever. It is asked every glance.
	patience = 5 * time.Second
	glance   = 20 * time.Millisecond
	// answerBytes of events is what one answer takes, about: one event more.
	answerBytes = 1 << 20
	// expirySpread is how much longer than its credential a poll lasts at most:
	// credentials that were made in one second don't end in one.
	expirySpread = 5 * time.Second
)

// waitOf is how long the client wants to wait.
func waitOf(r *http.Request) (time.Duration, error) {
	if !strings.Contains(r.URL.RawQuery, "wait") {
		return defaultWait, nil
	}
	asked, given := r.URL.Query()["wait"]
	if !given {
		return defaultWait, nil
	}
	seconds, err := strconv.ParseUint(asked[0], 10, 16)
	if len(asked) != 1 || err != nil || time.Duration(seconds)*time.Second > maxWait {
		return 0, &door.RefusedError{Status: http.StatusBadRequest, Reason: "wait: say once how many seconds to wait, 0 to 60"}
	}
	return time.Duration(seconds) * time.Second, nil
}

// A caller is a client that waits for its answer: the sink of a session.
type caller struct {
	request *http.Request
	wake    chan struct{}
}

// Wake implements session.Sink.
func (c *caller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Peer implements session.Sink.
func (c *caller) Peer() (address, protocol string) {
	protocol = c.request.Proto
	if c.request.TLS != nil {
		protocol += ", TLS"
	}
	return c.request.RemoteAddr, protocol
}

// await returns a session's events as soon as there are some, and nothing when
// the time is up or the session has ended: by what somebody else wished, by its
// credential, or because the client is gone.
func (c *caller) await(s *session.Session, wait time.Duration, expires time.Time) [][]byte {
	began, gone := time.Now(), c.request.Context().Done()
	up := time.NewTimer(wait)
	defer up.Stop()
	if end, ok := lasts(expires, wait); ok {
		timer := time.AfterFunc(end, func() { s.End(session.Expired) })
		defer timer.Stop()
	}
	for late := false; ; {
		select {
		case <-gone:
			s.End(session.ClientGone)
			return nil
		case <-c.wake:
			if s.Ended() == "" {
				c.linger(gone)
			}
		case <-up.C:
			late = true
		}
		over := late && (s.Live() || time.Since(began) >= wait+patience) // before Next: what makes it live gives it events first
		events := s.Next(nil, answerBytes)
		switch {
		case len(events) > 0 || s.Ended() != "":
			return events
		case over:
			return nil
		case late:
			up.Reset(glance)
		}
	}
}

// linger lets more come.
func (c *caller) linger(gone <-chan struct{}) {
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	}
}

// lasts is after how long a credential ends a poll; false if it outlasts it.
func lasts(expires time.Time, wait time.Duration) (time.Duration, bool) {
	left := time.Until(expires)
	if expires.IsZero() || left > wait+patience {
		return 0, false
	}
	return max(left, 0) + backoff.Jitter(expirySpread/2, 1), true
}
