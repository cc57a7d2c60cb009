// Package frame owns the bytes of text/event-stream in both directions: it
// writes the gateway's frames and reads any stream as the WHATWG HTML standard
// says (§9.2.5, §9.2.6). It knows neither sockets nor HTTP. Its invariant:
// every unit that it writes ends with a blank line and stands on its own, so
// whole units may be joined in any order, and nothing inside an event can
// become a field, a frame or a comment.
package frame

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"downlink/internal/event"
)

// Ping is the keep-alive for a session whose shard has not moved on.
// Its blank line dispatches nothing; it makes the ping a unit like the others.
const Ping = ": ping\n\n"

// maxIDBytes is the length of the longest entry ID: two 64-bit numbers.
const maxIDBytes = 20 + 1 + 20

// AppendEvent adds the frame of an event to dst: its ID, its type, and one data
// line for each line of the payload, where LF, CR LF and CR all end a line. A
// reader joins the lines with LF, so CR LF and CR reach the device as LF and
// everything else as it was. It allocates only if dst has too little room, and
// then once: AppendEvent(nil, …) is the way to get a frame of its own.
func AppendEvent(dst []byte, id event.ID, typ, payload string) []byte {
	breaks := strings.Count(payload, "\n") + strings.Count(payload, "\r")
	dst = slices.Grow(dst, len("id: \nevent: \ndata: \n\n")+maxIDBytes+len(typ)+len(payload)+breaks*len("data: "))
	dst = appendID(dst, id)
	dst = append(dst, "event: "...)
	dst = appendLine(dst, typ, "\uFFFD")
	dst = append(dst, '\n')
	if breaks == 0 {
		dst = append(dst, "data: "...)
		dst = append(dst, payload...)
		return append(dst, "\n\n"...)
	}
	return append(appendData(dst, payload), '\n')
}

// appendData writes one data line for each line of the payload; a line end at
// the payload's end yields an empty last line, which keeps it for the reader.
func appendData(dst []byte, payload string) []byte {
	for {
		dst = append(dst, "data: "...)
		end := strings.IndexAny(payload, "\r\n")
		if end < 0 {
			dst = append(dst, payload...)
			return append(dst, '\n')
		}
		dst = append(dst, payload[:end]...)
		dst = append(dst, '\n')
		if strings.HasPrefix(payload[end:], "\r\n") {
			end++
		}
		payload = payload[end+1:]
	}
}

// AppendPosition adds an id-only frame: it moves the reader's last event ID and
// dispatches nothing.
func AppendPosition(dst []byte, id event.ID) []byte {
	return append(appendID(dst, id), '\n')
}

// AppendRetry adds a retry field: how long a reader waits before it reconnects,
// in whole milliseconds. A negative delay counts as 0.
func AppendRetry(dst []byte, after time.Duration) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, max(after, 0).Milliseconds(), 10)
	return append(dst, "\n\n"...)
}

// AppendComment adds a comment, which readers skip. CR, LF and NUL in the text
// become spaces.
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ": "...)
	dst = appendLine(dst, text, " ")
	return append(dst, "\n\n"...)
}

// AppendResync adds a resync frame: id is the position from which
// live delivery continues, after how long the device should wait before it
// fetches its full state (whole milliseconds; a negative one counts as 0).
func AppendResync(dst []byte, id event.ID, reason event.Reason, after time.Duration) []byte {
	dst = appendID(dst, id)
	dst = append(dst, "event: "+event.ResyncType+"\ndata: "...)
	dst = AppendResyncData(dst, reason, after)
	return append(dst, "\n\n"...)
}

// AppendResyncData adds the JSON object that is the data of a resync.
func AppendResyncData(dst []byte, reason event.Reason, after time.Duration) []byte {
	dst = append(dst, `{"reason":"`...)
	dst = appendReason(dst, reason)
	dst = append(dst, `","after_ms":`...)
	dst = strconv.AppendInt(dst, max(after, 0).Milliseconds(), 10)
	return append(dst, '}')
}

func appendID(dst []byte, id event.ID) []byte {
	dst = append(dst, "id: "...)
	return append(id.Append(dst), '\n')
}

// appendLine adds a text that must stay on one line. Whatever could end the
// line, or the text for a reader in C, is replaced and not removed: removing
// it would turn "re\nsync" into the name of our own frame.
func appendLine(dst []byte, text, instead string) []byte {
	for {
		i := strings.IndexAny(text, "\r\n\x00")
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		dst = append(dst, instead...)
		text = text[i+1:]
	}
}

// appendReason keeps what may stand in a JSON string without an escape. The
// reasons of the contract are lower-case letters and hyphens and lose nothing.
func appendReason(dst []byte, reason event.Reason) []byte {
	for _, c := range []byte(reason) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' {
			dst = append(dst, c)
		}
	}
	return dst
}
