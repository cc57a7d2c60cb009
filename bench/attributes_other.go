//go:build !linux

package main

import "syscall"

// attributes gives a child a group of its own, as on Linux.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
