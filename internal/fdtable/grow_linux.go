package fdtable

import "golang.org/x/sys/unix"

// grow asks for a descriptor that is high enough, for a moment: the table never
// shrinks.
func grow(n int) {
	pipe := make([]int, 2)
	if n < 1 || unix.Pipe2(pipe, unix.O_CLOEXEC) != nil {
		return
	}
	high, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_DUPFD_CLOEXEC, n-1)
	if err == nil { // else the limit of descriptors is lower
		pipe = append(pipe, high)
	}
	for _, fd := range pipe {
		unix.Close(fd) //nolint:errcheck // nothing was written
	}
}
