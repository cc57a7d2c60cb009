//go:build !linux

package watch

// Read is only there on Linux.
func Read(Target, bool) (Use, error) { return Use{}, ErrUnsupported }

// TCPMemory is only there on Linux.
func TCPMemory() (int64, error) { return 0, ErrUnsupported }
