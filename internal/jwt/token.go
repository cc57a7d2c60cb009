package jwt

import (
	"encoding/base64"
	"strings"
)

// A Token is a JWS in compact form (RFC 7515 §7.1), taken apart. It isn't to be
// believed before Verifier.Prove has said so.
type Token struct {
	alg, kid  string
	signed    string // what the signature covers: header and payload as they came
	header    []byte
	payload   []byte
	signature []byte
	claims    claims
}

// Claim is the value of the claim that Options.Claims has at index n.
func (t *Token) Claim(n int) Value { return t.claims.further[n] }

// symmetric reports whether who can check the token can also make it.
func (t *Token) symmetric() bool { return strings.HasPrefix(t.alg, "HS") }

// base64url is strict, so that a token has one spelling.
var base64url = base64.RawURLEncoding.Strict()

func malformed(why string) error {
	return failed(Malformed, "the token isn't a signed JWT: "+why)
}

func parseToken(text string) (*Token, error) {
	head, rest, _ := strings.Cut(text, ".")
	body, signature, ok := strings.Cut(rest, ".")
	// The decoder would pass over line ends.
	if !ok || strings.ContainsAny(text, "\r\n") {
		return nil, malformed("it must have three parts with a dot between them")
	}
	header, err1 := base64url.DecodeString(head)
	payload, err2 := base64url.DecodeString(body)
	sig, err3 := base64url.DecodeString(signature)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, malformed("its parts must be base64url without padding")
	}
	t := &Token{signed: text[:len(head)+1+len(body)], header: header, payload: payload, signature: sig}
	if err := t.readHeader(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Token) readHeader() error {
	var alg, kid, crit Value
	var twice bool
	ok := members(t.header, func(name, value []byte) {
		switch string(name) {
		case "alg":
			take(&alg, value, &twice)
		case "kid":
			take(&kid, value, &twice)
		case "crit":
			take(&crit, value, &twice)
		}
	})
	switch {
	case !ok:
		return malformed("its header must be a JSON object")
	case twice:
		return malformed("a member of its header that counts stands there twice")
	}
	if crit != nil {
		return malformed("its header demands extensions (crit), and none are supported") // RFC 7515 §4.1.11
	}
	if t.alg, ok = alg.Text(); !ok {
		return malformed("its header must have an alg")
	}
	if t.kid, ok = kid.Text(); !ok && kid != nil {
		return malformed("the kid in its header must be a string")
	}
	return nil
}
