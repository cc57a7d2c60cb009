// Package fdtable owns the size of the process's table of file descriptors. It
// neither opens descriptors nor limits them. Its invariant: it changes how soon
// a descriptor is there, never which ones there are.
package fdtable

// most is the largest table that Grow makes: 512 KiB of kernel memory. Beyond
// it one connection in tens of thousands has to wait.
const most = 1 << 16

// Grow sees to it that the table has room for n descriptors (up to 65536), and
// does nothing where that isn't needed or possible. To be called once, before a
// crowd is let in.
//
// Linux doubles the table when it is full, and in a process of several threads
// it then waits until no processor can still be reading the old one (an RCU
// grace period, expand_fdtable in fs/file.c): 10 to 20 ms on an idle machine,
// many times that on a busy one, in which no thread gets a descriptor. On the
// way to 10,000 connections that happens six times. Measured on two cores with
// other work beside it: 13,000 connects a second without this, and the slowest
// in a hundred after 255 ms; 27,000, and 10 ms, with it.
func Grow(n int) { grow(min(n, most)) }
