package frame

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"downlink/internal/event"
)

// AppendEventJSON adds an event as a JSON object with the members id, type and
// data, all of them strings: data is the text that a reader of the event's
// frame gets, so that a device learns the same whichever way it asks.
func AppendEventJSON(dst []byte, id event.ID, typ, payload string) []byte {
	dst = appendHeadJSON(dst, id)
	dst = appendString(dst, string(appendLine(nil, typ, "\uFFFD")))
	dst = append(dst, `,"data":`...)
	if strings.Contains(payload, "\r") {
		payload = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(payload)
	}
	dst = appendString(dst, payload)
	return append(dst, '}')
}

// AppendResyncJSON adds a resync as AppendEventJSON adds an event; see
// AppendResync.
func AppendResyncJSON(dst []byte, id event.ID, reason event.Reason, after time.Duration) []byte {
	dst = appendHeadJSON(dst, id)
	dst = append(dst, `"`+event.ResyncType+`","data":`...)
	dst = appendString(dst, string(AppendResyncData(nil, reason, after)))
	return append(dst, '}')
}

// AppendPositionJSON adds a position as AppendEventJSON adds an event: it has an
// id alone.
func AppendPositionJSON(dst []byte, id event.ID) []byte {
	return append(id.Append(append(dst, `{"id":"`...)), `"}`...)
}

func appendHeadJSON(dst []byte, id event.ID) []byte {
	dst = append(dst, `{"id":"`...)
	dst = id.Append(dst)
	return append(dst, `","type":`...)
}

// appendString adds a JSON string (RFC 8259 §7) of valid UTF-8. What isn't
// valid becomes U+FFFD, as it does in a frame's reader.
func appendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string(appendUTF8(nil, []byte(s)))
	}
	dst = append(dst, '"')
	plain := 0 // up to here s is in dst
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[plain:i]...)
		plain = i + 1
		dst = appendEscape(dst, c)
	}
	return append(append(dst, s[plain:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\t':
		return append(dst, `\t`...)
	}
	dst = append(dst, `\u00`...)
	if c < 0x10 {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, uint64(c), 16)
}
