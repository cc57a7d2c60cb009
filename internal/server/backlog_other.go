//go:build !linux

package server

import "syscall"

func backlog(syscall.Conn) (Backlog, error) { return Backlog{}, ErrNoBacklog }
