package door

import (
	"net/http"

	"downlink/internal/event"
	"downlink/internal/shard"
)

// startOf reads where a client wants to begin. Nothing of a cursor gets any
// further unparsed, and a bad one is told so on the stream: to a browser's
// EventSource an error status would be final.
func startOf(r *http.Request, groups []string) (shard.Start, error) {
	cursor, given, from := asked(r)
	if !given || cursor == "" {
		switch from {
		case "":
			return shard.Start{Reason: event.NoCursor}, nil
		case "earliest":
			return shard.Start{Earliest: true}, nil
		default:
			return shard.Start{}, &RefusedError{http.StatusBadRequest, `from: only "earliest" is known; leave it out for a resync and live events`}
		}
	}
	id, err := event.ParseID(cursor)
	if err != nil {
		return shard.Start{Reason: event.InvalidCursor}, nil
	}
	if before := r.Header.Get(GroupsHeader); before != "" && before != GroupsValue(groups) {
		return shard.Start{Reason: event.GroupsChanged}, nil
	}
	return shard.Start{Cursor: id}, nil
}

// asked is what a request says of its cursor: the header wins, and of several
// parameters the first.
func asked(r *http.Request) (cursor string, given bool, from string) {
	header := r.Header.Values("Last-Event-ID")
	begun := false
	eachParameter(r.URL.RawQuery, func(name, value string) {
		switch {
		case name == "lastEventId" && !given:
			cursor, given = value, true
		case name == "from" && !begun:
			from, begun = value, true
		}
	})
	if len(header) > 0 {
		cursor, given = header[0], true
	}
	return cursor, given, from
}
