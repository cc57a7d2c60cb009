//go:build !linux

package chart

import "syscall"

// confined is for Linux.
func confined(string) *syscall.SysProcAttr { return nil }
