package auth

import (
	"encoding/base64"
	"strings"
)

// A token is a JWS in compact form (RFC 7515 §7.1), taken apart and not yet
// believed.
type token struct {
	alg, kid  string
	signed    string // what the signature covers: header and payload as they came
	header    []byte
	payload   []byte
	signature []byte
}

// symmetric reports whether who can check the token can also make it.
func (t token) symmetric() bool { return strings.HasPrefix(t.alg, "HS") }

// base64url is strict, so that a token has one spelling.
var base64url = base64.RawURLEncoding.Strict()

func malformed(why string) error {
	return failed(TokenMalformed, "the token isn't a signed JWT: "+why)
}

func parseToken(text string) (token, error) {
	head, rest, _ := strings.Cut(text, ".")
	body, signature, ok := strings.Cut(rest, ".")
	// The decoder would pass over line ends.
	if !ok || strings.ContainsAny(text, "\r\n") {
		return token{}, malformed("it must have three parts with a dot between them")
	}
	t := token{signed: text[:len(head)+1+len(body)]}
	header, err1 := base64url.DecodeString(head)
	payload, err2 := base64url.DecodeString(body)
	sig, err3 := base64url.DecodeString(signature)
	if err1 != nil || err2 != nil || err3 != nil {
		return token{}, malformed("its parts must be base64url without padding")
	}
	t.header, t.payload, t.signature = header, payload, sig
	return t, t.readHeader(header)
}

func (t *token) readHeader(header []byte) error {
	var alg, kid, crit []byte
	var twice bool
	ok := members(header, func(name, value []byte) {
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
	if t.alg, ok = stringOf(alg); !ok {
		return malformed("its header must have an alg")
	}
	if t.kid, ok = stringOf(kid); !ok && kid != nil {
		return malformed("the kid in its header must be a string")
	}
	return nil
}
