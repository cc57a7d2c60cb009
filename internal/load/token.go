package load

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"downlink/internal/load/template"
)

// A Token mints a JSON Web Token (HS256, RFC 7519) for each device.
type Token struct {
	secret []byte
	claims template.Template
	ttl    time.Duration // 0: without an expiry
}

// NewToken takes the claims as a template of a JSON object with {device} and
// {n}. iat and, with a ttl, exp are added.
func NewToken(secret []byte, claims string, ttl time.Duration) (*Token, error) {
	if len(secret) == 0 {
		return nil, errors.New("the file with the secret for tokens is empty")
	}
	if ttl < 0 {
		return nil, errors.New("--token-ttl can't be negative")
	}
	t := &Token{secret: secret, ttl: ttl}
	var err error
	if t.claims, err = template.Parse(strings.TrimSpace(claims), "device", "n"); err != nil {
		return nil, fmt.Errorf("--token-claims: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(t.fill(nil, "x", 0), &members); err != nil {
		return nil, fmt.Errorf("--token-claims isn't a JSON object: %w", err)
	}
	return t, nil
}

func (t *Token) fill(b []byte, device string, n int) []byte {
	return t.claims.Append(b, func(b []byte, name string) []byte {
		if name == "n" {
			return strconv.AppendInt(b, int64(n), 10)
		}
		quoted, _ := json.Marshal(device) // a string always can be
		return append(b, quoted[1:len(quoted)-1]...)
	})
}

// jwtHeader is {"alg":"HS256","typ":"JWT"}.
const jwtHeader = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"

// Append appends a device's token.
func (t *Token) Append(b []byte, device string, n int, now time.Time) []byte {
	claims := t.fill(nil, device, n)
	end := strings.LastIndexByte(string(claims), '}')
	claims = claims[:end]
	if strings.TrimSpace(string(claims)) != "{" {
		claims = append(claims, ',')
	}
	claims = strconv.AppendInt(append(claims, `"iat":`...), now.Unix(), 10)
	if t.ttl > 0 {
		claims = strconv.AppendInt(append(claims, `,"exp":`...), now.Add(t.ttl).Unix(), 10)
	}
	claims = append(claims, '}')
	start := len(b)
	b = append(b, jwtHeader+"."...)
	b = base64.RawURLEncoding.AppendEncode(b, claims)
	mac := hmac.New(sha256.New, t.secret)
	mac.Write(b[start:])
	b = append(b, '.')
	return base64.RawURLEncoding.AppendEncode(b, mac.Sum(nil))
}
