package main

import "syscall"

// attributes gives a child a group of its own, so that an interrupt on the
// terminal reaches it through us alone, in order; and ends it with us, even
// if we are killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
