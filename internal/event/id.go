package event

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// An ID names an entry of a shard: milliseconds and a sequence number, as in
// a Redis Stream (https://redis.io/docs/latest/develop/data-types/streams/#entry-ids).
// Inside a shard IDs only rise. The zero ID stands before every entry.
type ID struct {
	Ms  uint64
	Seq uint64
}

// ErrID says that a text is not an entry ID in canonical form.
var ErrID = errors.New(`not an entry ID: want "<milliseconds>-<sequence>" in decimal without leading zeros`)

// MaxID is the highest ID there can be.
var MaxID = ID{Ms: ^uint64(0), Seq: ^uint64(0)}

// ParseID reads the canonical form "<ms>-<seq>" and nothing else. Redis takes
// more ("$", "+", "5", "00010-0"); a cursor from outside must not mean any of it.
func ParseID(s string) (ID, error) {
	ms, seq, found := strings.Cut(s, "-")
	if !found {
		return ID{}, ErrID
	}
	m, ok := parsePart(ms)
	if !ok {
		return ID{}, ErrID
	}
	q, ok := parsePart(seq)
	if !ok {
		return ID{}, ErrID
	}
	return ID{Ms: m, Seq: q}, nil
}

func parsePart(s string) (uint64, bool) {
	if s == "" || (len(s) > 1 && s[0] == '0') {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' { // ParseUint would take "+5"
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// Compare is -1, 0 or +1 as id comes before, is, or comes after other.
func (id ID) Compare(other ID) int {
	if c := cmp.Compare(id.Ms, other.Ms); c != 0 {
		return c
	}
	return cmp.Compare(id.Seq, other.Seq)
}

// Less reports whether id comes before other.
func (id ID) Less(other ID) bool { return id.Compare(other) < 0 }

// IsZero reports whether id stands before every entry.
func (id ID) IsZero() bool { return id == ID{} }

// Next is the lowest ID above id. MaxID has none and is returned as it is.
func (id ID) Next() ID {
	switch {
	case id == MaxID:
		return id
	case id.Seq == ^uint64(0):
		return ID{Ms: id.Ms + 1}
	default:
		return ID{Ms: id.Ms, Seq: id.Seq + 1}
	}
}

// Max is the later of two IDs.
func Max(a, b ID) ID {
	if a.Less(b) {
		return b
	}
	return a
}

// Append adds the canonical form to dst.
func (id ID) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, id.Ms, 10)
	dst = append(dst, '-')
	return strconv.AppendUint(dst, id.Seq, 10)
}

// String is the canonical form. IDs are strings on every wire: a JavaScript
// number can't hold them.
func (id ID) String() string {
	return string(id.Append(make([]byte, 0, 41)))
}

// MarshalText makes an ID a string in JSON.
func (id ID) MarshalText() ([]byte, error) { return id.Append(nil), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
