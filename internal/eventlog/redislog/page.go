package redislog

import (
	"strconv"

	"downlink/internal/event"

	"github.com/redis/rueidis"
)

// pageEntries is how many entries the script that counts bytes returns at most:
// it takes the server a few microseconds for each.
const pageEntries = 2000

// pageArgs are the arguments of that script, but for the positions.
func pageArgs(room limits, upTo event.ID, streams int) []string {
	args := make([]string, 0, 3+streams)
	return append(args, strconv.Itoa(max(room.bytes, 1)), strconv.Itoa(min(room.entries, pageEntries)), upTo.String())
}

// A slice is what the script found in one stream.
type slice struct {
	place   int // among those that were named
	more    bool
	entries rueidis.RedisMessage
}

// slices reads the script's reply: the first so many of the streams that were
// named have been looked at; only those with entries have a slice.
func readSlices(reply rueidis.RedisMessage) (looked int, found []slice, err error) {
	parts, err := reply.ToArray()
	if err != nil || len(parts) == 0 {
		return 0, nil, oddReply(err)
	}
	n, err := parts[0].AsInt64()
	if err != nil {
		return 0, nil, oddReply(err)
	}
	for i := range parts[1:] {
		part, err := arrays(parts[1+i], 3)
		if err != nil {
			return 0, nil, err
		}
		place, err := part[0].AsInt64()
		if err != nil || place < 1 || place > n {
			return 0, nil, oddReply(err)
		}
		more, err := part[1].AsInt64()
		if err != nil {
			return 0, nil, oddReply(err)
		}
		found = append(found, slice{int(place) - 1, more != 0, part[2]})
	}
	return int(n), found, nil
}
