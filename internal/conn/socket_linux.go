package conn

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// scratch is what a writer needs while it works, and no connection keeps.
type scratch struct {
	ready  []*light
	frames [][]byte
	buf    []byte
}

func newScratch() *scratch {
	return &scratch{frames: make([][]byte, 0, 64), buf: make([]byte, 0, gatherLight)}
}

// forget drops references to frames, and the room that an unusual number took.
func (s *scratch) forget(frames [][]byte) {
	clear(frames)
	if cap(frames) > 1024 {
		frames = make([][]byte, 0, 64)
	}
	s.frames = frames[:0]
}

// write writes the beginning of frames with one system call: small ones are
// copied together, which costs less than a vector of them.
func (s *scratch) write(fd int, frames [][]byte) (int, error) {
	b := frames[0]
	if len(frames) > 1 && len(b) < gatherLight {
		s.buf = s.buf[:0]
		for _, f := range frames {
			if len(s.buf) == gatherLight {
				break
			}
			s.buf = append(s.buf, f[:min(len(f), gatherLight-len(s.buf))]...)
		}
		b = s.buf
	}
	return writeNow(fd, b)
}

// skip is what is left of frames behind the first n bytes.
func skip(frames [][]byte, n int) [][]byte {
	for n > 0 {
		if n < len(frames[0]) {
			frames[0] = frames[0][n:]
			break
		}
		n -= len(frames[0])
		frames = frames[1:]
	}
	return frames
}

func size(frames [][]byte) int {
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// unacked is how many bytes the peer's side hasn't taken yet (SIOCOUTQ, tcp(7)).
// It falls while a peer reads, long before the socket has room again.
func unacked(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0 // the next write says why
	}
	return n
}

// acknowledgeWithin says after how long the kernel gives a peer up that
// acknowledges nothing (TCP_USER_TIMEOUT, tcp(7)); 0 leaves that to us.
func acknowledgeWithin(fd int, limit time.Duration) {
	// It can fail only for a socket that is closed, and the next write says so.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
}

// fault names why a socket is of no use any more. TCP_USER_TIMEOUT reports a
// peer that acknowledges nothing, which is what write_timeout is about.
func fault(err error) error {
	if errors.Is(err, unix.ETIMEDOUT) {
		return ErrStalled
	}
	return ErrGone
}
