package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/reload"
	"downlink/internal/strictjson"
)

// Tokens are static tokens: random texts, each of one device, of which a file
// holds the SHA-256 and no more. Safe for concurrent use.
type Tokens struct {
	path string
	now  atomic.Pointer[tokenFile]
}

type digest = [sha256.Size]byte

// tokenFile is what the file says.
type tokenFile struct {
	lines map[digest]TokenLine // by SHA-256 of the token
	sum   digest               // of the file's content
}

// A TokenLine is one line of the file, as JSON.
type TokenLine struct {
	SHA256  string   `json:"sha256"` // of the token, in hexadecimal
	Device  string   `json:"device"`
	Groups  []string `json:"groups,omitempty"`
	Expires string   `json:"expires,omitempty"` // RFC 3339; empty: never

	until time.Time
}

// MinTokenLength is how many characters a static token needs. It says nothing
// of their randomness, but a password that somebody remembers has fewer.
const MinTokenLength = 32

// OpenTokens reads the file. An error names it and the line that is wrong, and
// nothing of what stands there.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	if _, err := t.Load(); err != nil {
		return nil, err
	}
	return t, nil
}

// Load reads the file again and reports whether it has changed. After an error
// what was read before stays in use.
func (t *Tokens) Load() (changed bool, err error) {
	data, err := reload.File(t.path, maxTokensBytes)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(data)
	if before := t.now.Load(); before != nil && before.sum == sum {
		return false, nil
	}
	lines, err := parseTokens(data)
	if err != nil {
		return false, fmt.Errorf("%s %w", t.path, err)
	}
	t.now.Store(&tokenFile{lines, sum})
	return true, nil
}

// maxTokensBytes is room for a hundred thousand lines; it keeps a wrong path from
// being read into memory.
const maxTokensBytes = 16 << 20

// parseTokens reads one token a line; empty lines and those that begin with #
// don't count. Its errors complete the sentence "<file> …".
func parseTokens(data []byte) (map[digest]TokenLine, error) {
	// A file that is being written anew is empty for a moment.
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("is empty; to let no token count, leave a line that begins with #")
	}
	lines := make(map[digest]TokenLine)
	number := 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		line, sum, err := parseTokenLine(text)
		if err != nil {
			return nil, fmt.Errorf("can't be used: line %d %w", number, err)
		}
		if _, twice := lines[sum]; twice {
			return nil, fmt.Errorf("can't be used: the token in line %d stands in another line too", number)
		}
		lines[sum] = line
	}
	return lines, nil
}

var errTokenLine = errors.New(`isn't of the form {"sha256":"…","device":"…","groups":["…"],"expires":"2030-01-01T00:00:00Z"}; "downlink token hash" makes such a line`)

func parseTokenLine(text []byte) (line TokenLine, sum digest, err error) {
	if strictjson.Read(text, map[string]any{"sha256": &line.SHA256, "device": &line.Device, "groups": &line.Groups, "expires": &line.Expires}) != nil {
		return line, sum, errTokenLine
	}
	raw, err := hex.DecodeString(line.SHA256)
	if err != nil || len(raw) != len(sum) {
		return line, sum, errors.New("has no sha256 of 64 hexadecimal digits")
	}
	if event.ValidateDevice(line.Device) != nil {
		return line, sum, errors.New("has no device ID of 1 to 128 bytes of text that begin with neither * nor @")
	}
	var why string
	if line.Groups, why = tidy(line.Groups); why != "" {
		return line, sum, errors.New("has groups that can't be: it " + why)
	}
	if line.Expires != "" {
		if line.until, err = time.Parse(time.RFC3339, line.Expires); err != nil {
			return line, sum, errors.New("has an expires that is no time, such as 2030-01-01T00:00:00Z")
		}
	}
	return line, digest(raw), nil
}

// check finds the token. What the time of the search may tell is something of
// the digest, which the sender knows, and from no digest a way leads to another
// token.
func (t *Tokens) check(token string) (Identity, error) {
	if len(token) < MinTokenLength {
		return Identity{}, failed(TokenMalformed, "the token is too short: static tokens have 32 characters or more")
	}
	sum := sha256.Sum256([]byte(token))
	line, ok := t.now.Load().lines[sum]
	if !ok {
		return Identity{}, failed(TokenUnknown, "the token is not, or no longer, among those of this gateway")
	}
	if now := time.Now(); !line.until.IsZero() && !now.Before(line.until) {
		return Identity{}, claiming(line.Device, failed(TokenExpired, "the token expired at "+clock(line.until)+" and it is "+clock(now)+" here: get a new one"))
	}
	return Identity{By: "tokens", Device: line.Device, Groups: line.Groups, Expires: line.until, Valid: func() bool {
		now, ok := t.now.Load().lines[sum]
		return ok && now.means(line)
	}}, nil
}

// means reports whether two lines say the same of a token.
func (l TokenLine) means(other TokenLine) bool {
	return l.Device == other.Device && slices.Equal(l.Groups, other.Groups) && l.until.Equal(other.until)
}

// NewTokenLine is the line of a token, checked as the gateway will read it.
func NewTokenLine(token, device string, groups []string, expires time.Time) (string, error) {
	if len(token) < MinTokenLength {
		return "", fmt.Errorf("the token has %d characters; at least %d are needed, and they must be random", len(token), MinTokenLength)
	}
	sum := sha256.Sum256([]byte(token))
	line := TokenLine{SHA256: hex.EncodeToString(sum[:]), Device: device, Groups: groups}
	if !expires.IsZero() {
		line.Expires = clock(expires)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(line); err != nil {
		return "", err
	}
	out := bytes.TrimSpace(text.Bytes())
	if _, _, err := parseTokenLine(out); err != nil {
		return "", fmt.Errorf("the line %w", err)
	}
	return string(out), nil
}
