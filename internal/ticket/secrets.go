package ticket

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"downlink/internal/reload"
)

// Kinds of what is sealed: one can't be shown as the other.
const (
	ticketKind  = "downlink ticket 1\x00"
	sessionKind = "downlink session 1\x00"
)

const (
	// maxText is how long a ticket or a cookie may be: browsers take cookies up
	// to 4,096 bytes with their names and attributes.
	maxText = 3072
	// minSecret is as long as the MAC.
	minSecret  = 32
	maxSecrets = 16
	// maxFileBytes keeps a wrong path from being read into memory.
	maxFileBytes = 1 << 20
)

// secrets are a file's lines.
type secrets struct {
	path string
	now  atomic.Pointer[loaded]
}

type loaded struct {
	keys [][]byte // at least one
	sum  [sha256.Size]byte
}

func (s *secrets) load() (changed bool, err error) {
	data, err := reload.File(s.path, maxFileBytes)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(data)
	if before := s.now.Load(); before != nil && before.sum == sum {
		return false, nil
	}
	keys, err := parseSecrets(data)
	if err != nil {
		return false, fmt.Errorf("%s %w", s.path, err)
	}
	s.now.Store(&loaded{keys, sum})
	return true, nil
}

// parseSecrets reads one secret a line. Its errors complete the sentence "<file> …".
func parseSecrets(data []byte) ([][]byte, error) {
	var keys [][]byte
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case len(line) == 0:
			continue
		case len(line) < minSecret:
			return nil, fmt.Errorf("can't be used: the secret in line %d has %d bytes; at least %d are needed", number, len(line), minSecret)
		}
		keys = append(keys, line)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("holds no secret; write one of at least %d bytes, for example by: openssl rand -hex 32", minSecret)
	}
	if len(keys) > maxSecrets {
		return nil, fmt.Errorf("holds %d secrets; at most %d are allowed", len(keys), maxSecrets)
	}
	return keys, nil
}

// base64url is strict, so that what is sealed has one spelling.
var base64url = base64.RawURLEncoding.Strict()

// seal signs a grant with the first secret.
func (s *secrets) seal(kind string, g grant) string {
	data, err := json.Marshal(g)
	if err != nil { // texts and numbers don't fail
		panic(err)
	}
	body := base64url.EncodeToString(data)
	return body + "." + base64url.EncodeToString(mac(s.now.Load().keys[0], kind, body))
}

// open reads into g what one of the secrets has sealed as that kind; false if
// none has.
func (s *secrets) open(kind, text string, g *grant) bool {
	body, signature, ok := strings.Cut(text, ".")
	if !ok || len(text) > maxText || strings.ContainsAny(text, "\r\n") { // the decoder would pass over line ends
		return false
	}
	given, err := base64url.DecodeString(signature)
	if err != nil {
		return false
	}
	for _, key := range s.now.Load().keys {
		if hmac.Equal(given, mac(key, kind, body)) {
			data, err := base64url.DecodeString(body)
			return err == nil && json.Unmarshal(data, g) == nil
		}
	}
	return false
}

func mac(key []byte, kind, body string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, kind) // a hash takes everything
	_, _ = io.WriteString(h, body)
	return h.Sum(nil)
}
