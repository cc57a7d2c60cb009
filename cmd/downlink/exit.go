package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes. Scripts rely on them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitMissed  = 4
)

// An exitMeaning explains a code, for help and reference.
type exitMeaning struct {
	code    int
	meaning string
}

func exitMeanings() []exitMeaning {
	return []exitMeaning{
		{exitDone, "done; also when a running command was ended by SIGINT or SIGTERM"},
		{exitFailed, "failed while running: something can't be reached or has no room; repeating may help"},
		{exitUsage, "the command line or the configuration is wrong; nothing was started"},
		{exitRefused, "the gateway refused: an event or a credential is wrong; repeating it unchanged is useless"},
		{exitMissed, "done, and what was looked for isn't so: load measured that connections failed or a threshold was crossed; explain found that the device isn't connected; check --connect found problems; a drain was aborted, or had to cut connections"},
	}
}

func exitCodes() string {
	var b strings.Builder
	b.WriteString("Exit codes:")
	for _, m := range exitMeanings() {
		fmt.Fprintf(&b, " %d %s.", m.code, m.meaning)
	}
	return b.String()
}

// A coded error ends the program with its code.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

func usage(err error) error   { return &coded{exitUsage, err} }
func refused(err error) error { return &coded{exitRefused, err} }

// report prints an error, if there is one, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "downlink: %s\n", strings.TrimRight(line, "\n")) //nolint:errcheck // nowhere else to complain
	}
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	return exitFailed
}
