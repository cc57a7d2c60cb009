package redislog

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed lua/board.lua
var boardSource string

// What is on it is small and gone in a moment, so memory that is full is no
// reason to be without it.
var boardScript = newScript("#!lua flags=allow-oom\n", boardSource)

const (
	// longestNote is for how long anybody may note anything.
	longestNote = time.Minute
	// mostNotes is from how many names on all are wiped off: no fleet has so many.
	mostNotes = 4096
)

// Post notes a gateway's word about itself for a while, and returns the word of
// every gateway that has lately done so, by name. The time is up by the server's
// clock. It is a blackboard: nothing that is promised may hang on it. In a list
// of servers it is at the first one, in a cluster at the first group's.
func (l *Log) Post(ctx context.Context, name, word string, ttl time.Duration) (map[string]string, error) {
	if err := l.refused(); err != nil {
		return nil, err
	}
	if ttl < time.Millisecond || ttl > longestNote {
		return nil, fmt.Errorf("a note for %v: it must be for 1ms to %v", ttl, longestNote)
	}
	first := &l.byShard[0]
	args := []string{name, word, strconv.FormatInt(ttl.Milliseconds(), 10), strconv.FormatInt(longestNote.Milliseconds(), 10), strconv.Itoa(mostNotes)}
	reply, err := first.home.eval(ctx, callBoard, boardScript, []string{boardKey(first.stream)}, args)
	if err != nil {
		return nil, err
	}
	all, err := reply.AsStrMap()
	if err != nil {
		return nil, oddReply(err)
	}
	return all, nil
}

// boardKey is beside the first shard's stream, whose key ends with its number.
func boardKey(first string) string { return strings.TrimSuffix(first, "0") + "gateways" }
