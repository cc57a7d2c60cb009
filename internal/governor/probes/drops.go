package probes

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A dropCount follows the kernel's count of connections that were dropped because
// a listener's queue was full. It is the network namespace's: other programs'
// listeners count too where the gateway has none of its own; so it is told to
// people, and never judged.
type dropCount struct {
	last uint64
	seen bool
}

// since says how many were dropped since it was asked last, or nothing.
func (d *dropCount) since(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return "" // not on Linux
	}
	now, ok := listenOverflows(string(text))
	before, seen := d.last, d.seen
	d.last, d.seen = now, ok
	if !ok || !seen || now <= before {
		return ""
	}
	return fmt.Sprintf("; %d connections were dropped on this machine since the last reading because a queue was full", now-before)
}

// listenOverflows reads the table of pairs of lines, names and values, that
// /proc/net/netstat is.
func listenOverflows(text string) (uint64, bool) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "ListenOverflows" && i < len(fields) {
				n, err := strconv.ParseUint(fields[i], 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}
