package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"downlink/internal/reload"
	"downlink/internal/strictyaml"
)

type digest = [sha256.Size]byte

// publishers are what the file says.
type publishers struct {
	callers map[digest]*Caller // by SHA-256 of the token
	sum     digest             // of the file's content
}

// maxFileBytes is room for thousands of publishers; it keeps a wrong path from
// being read into memory.
const maxFileBytes = 1 << 20

// readPublishers is nil if the file says what it said before.
func readPublishers(path string, before *publishers, d *denials) (*publishers, error) {
	data, err := reload.File(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	if before != nil && before.sum == sum {
		return nil, nil
	}
	callers, err := parsePublishers(data, d)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return &publishers{callers, sum}, nil
}

// An entry of the file.
type entry struct {
	Name   string `yaml:"name"`
	SHA256 string `yaml:"sha256"`
	Scopes `yaml:",inline"`
}

// parsePublishers reads a YAML list. Its errors complete the sentence "<file> …"
// and repeat nothing of the file but names: a token may stand there by mistake.
func parsePublishers(data []byte, d *denials) (map[digest]*Caller, error) {
	// A file that is being written anew is empty for a moment.
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("is empty; to let nobody publish, write []")
	}
	var entries []entry
	if err := strictyaml.Read(data, &entries); err != nil {
		return nil, fmt.Errorf("can't be used: %w; write a list whose entries have name, sha256, and any of devices, groups, broadcast, tickets, governor, admin", err)
	}
	callers := make(map[digest]*Caller, len(entries))
	for i, e := range entries {
		if err := validName(e.Name); err != nil {
			return nil, fmt.Errorf("can't be used: entry %d has no name of 1 to 128 bytes of text", i+1)
		}
		raw, err := hex.DecodeString(e.SHA256)
		if err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("can't be used: %q has no sha256 of 64 hexadecimal digits; make it of the token with: printf %%s \"$TOKEN\" | sha256sum", e.Name)
		}
		s, err := e.compile()
		if err != nil {
			return nil, fmt.Errorf("can't be used: %q %w", e.Name, err)
		}
		sum := digest(raw)
		if other := callers[sum]; other != nil {
			return nil, fmt.Errorf("can't be used: %q and %q have the same token", other.name, e.Name)
		}
		callers[sum] = &Caller{name: e.Name, rights: s, denials: d}
	}
	return callers, nil
}

const maxNameBytes = 128

var errName = errors.New("no name")

// validName: it gets into the log beside idempotency keys, and into errors.
func validName(name string) error {
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) {
		return errName
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return errName
		}
	}
	return nil
}
