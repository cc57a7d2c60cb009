package wire

import (
	"bytes"
	"math"
	"strconv"
)

// A Mark is what a payload carries, so that a receipt can be told from every
// other one however a server wraps it: dl1:<lane>:<seq>:<sent>:<late>; where the
// lane is a device's number, or b and a publisher's number for a broadcast.
type Mark struct {
	Sent   int64  // when the request was sent, in ns since 1970
	Late   int32  // how long after its scheduled time that was, in µs
	Lane   int32  // a device's number; from -1 down: a publisher's broadcasts
	Seq    uint32 // counts up from 0 in each lane
	Marked bool
}

// Broadcast is the lane of a publisher's broadcasts; publishers count from 0.
func Broadcast(publisher int) int32 { return int32(-1 - publisher) }

const prefix = "dl1:"

// maxMark is the length of the longest marker, in bytes.
const maxMark = len(prefix) + len("b2147483647:4294967295:9223372036854775807:2147483647;")

// Append appends the marker's text. None of its characters is escaped in a
// JSON string, so it passes through any wrapping.
func (m Mark) Append(b []byte) []byte {
	b = append(b, prefix...)
	lane := int64(m.Lane)
	if lane < 0 {
		b = append(b, 'b')
		lane = -1 - lane
	}
	b = append(strconv.AppendInt(b, lane, 10), ':')
	b = append(strconv.AppendUint(b, uint64(m.Seq), 10), ':')
	b = append(strconv.AppendInt(b, m.Sent, 10), ':')
	b = strconv.AppendInt(b, int64(max(m.Late, 0)), 10)
	return append(b, ';')
}

// FindMark finds the first marker in b, and what follows it.
func FindMark(b []byte) (m Mark, rest []byte, ok bool) {
	for {
		i := bytes.Index(b, []byte(prefix))
		if i < 0 {
			return Mark{}, b, false
		}
		b = b[i+len(prefix):]
		if m, n := parseMark(b); n > 0 {
			return m, b[n:], true
		}
	}
}

// parseMark reads a marker after its prefix; n is its length, or 0.
func parseMark(b []byte) (m Mark, n int) {
	broadcast := len(b) > 0 && b[0] == 'b'
	if broadcast {
		n = 1
	}
	var v [4]int64
	for i, part := range [4]struct {
		most int64
		end  byte
	}{{math.MaxInt32, ':'}, {math.MaxUint32, ':'}, {math.MaxInt64, ':'}, {math.MaxInt32, ';'}} {
		start := n
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			digit := int64(b[n] - '0')
			if v[i] > (part.most-digit)/10 {
				return m, 0
			}
			v[i] = v[i]*10 + digit
			n++
		}
		if n == start || n == len(b) || b[n] != part.end {
			return m, 0
		}
		n++
	}
	m = Mark{Lane: int32(v[0]), Seq: uint32(v[1]), Sent: v[2], Late: int32(v[3]), Marked: true}
	if broadcast {
		m.Lane = -1 - m.Lane
	}
	return m, n
}
