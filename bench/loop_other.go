//go:build !linux

package main

import (
	"context"
	"errors"
)

func runLoop(context.Context, string, string, string) error {
	return errors.New("the bare loop needs epoll(7)")
}
