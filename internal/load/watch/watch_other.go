//go:build !linux

package watch

// Read is only there on Linux.
func Read(Target, bool) (Use, error) { return Use{}, ErrUnsupported }

// Slab is only there on Linux.
func Slab() (int64, error) { return 0, ErrUnsupported }

// TCPMemory is only there on Linux.
func TCPMemory() (int64, error) { return 0, ErrUnsupported }
