package dial

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/lease"
	"downlink/internal/shard"
)

// Subprotocol is how the protocol of dialled WebSockets is called (RFC 6455 §1.9).
const Subprotocol = "downlink.v1"

// maxMessage bounds what a device may say at a time, in bytes.
const maxMessage = 4 << 10

// errMessage: a device said something that isn't of the protocol.
var errMessage = errors.New("the device sent a message that isn't of the protocol " + Subprotocol)

// A said is a message of a device. What it doesn't know is passed over, so that
// devices may be newer than this.
type said struct {
	Hello  *hello  `json:"hello"`
	Commit *string `json:"commit"`
}

// A hello is what a device says first.
type hello struct {
	Cursor string `json:"cursor"`
	Groups string `json:"groups"` // as the last welcome had it; empty: never mind
	From   string `json:"from"`   // "earliest", or empty
}

func parse(text []byte) (said, error) {
	var m said
	if err := json.Unmarshal(text, &m); err != nil {
		return said{}, errMessage
	}
	return m, nil
}

// start is where a device begins: its own cursor counts before the one that is
// kept for it. As in GET /events a cursor that can't be served is never an error,
// and nothing of it gets any further unparsed.
func (h hello) start(groups string, kept func() (event.ID, bool, error)) (shard.Start, error) {
	switch {
	case h.Cursor != "":
		id, err := event.ParseID(h.Cursor)
		switch {
		case err != nil:
			return shard.Start{Reason: event.InvalidCursor}, nil
		case h.Groups != "" && h.Groups != groups:
			return shard.Start{Reason: event.GroupsChanged}, nil
		}
		return shard.Start{Cursor: id}, nil
	case h.From == "earliest":
		return shard.Start{Earliest: true}, nil
	}
	id, ok, err := kept()
	if err != nil {
		return shard.Start{}, err
	}
	if ok {
		return shard.Start{Cursor: id}, nil
	}
	return shard.Start{Reason: event.NoCursor}, nil
}

// welcome answers a hello.
func welcome(l lease.Lease, member string, groups []string, keepalive time.Duration) []byte {
	type body struct {
		Generation uint64 `json:"generation,omitempty"`
		Member     string `json:"member,omitempty"`
		Groups     string `json:"groups"`
		Keepalive  int64  `json:"keepalive_ms"`
	}
	text, err := json.Marshal(struct {
		Welcome body `json:"welcome"`
	}{body{l.Generation, member, door.GroupsValue(groups), keepalive.Milliseconds()}})
	if err != nil { // texts and numbers don't fail
		panic(err)
	}
	return text
}

// risen says that the lease was taken again.
func risen(l lease.Lease) []byte {
	return append(strconv.AppendUint([]byte(`{"generation":`), l.Generation, 10), '}')
}
