package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// A token is a JWS in compact form (RFC 7515 §7.1), taken apart and not yet
// believed.
type token struct {
	alg, kid  string
	signed    string // what the signature covers: header and payload as they came
	payload   []byte
	signature []byte
}

// symmetric reports whether who can check the token can also make it.
func (t token) symmetric() bool { return strings.HasPrefix(t.alg, "HS") }

// base64url is strict, so that a token has one spelling.
func base64url() *base64.Encoding { return base64.RawURLEncoding.Strict() }

func malformed(why string) error {
	return &Error{TokenMalformed, "the token isn't a signed JWT: " + why}
}

func parseToken(text string) (token, error) {
	head, rest, _ := strings.Cut(text, ".")
	body, signature, ok := strings.Cut(rest, ".")
	// The decoder would pass over line ends.
	if !ok || strings.ContainsAny(text, "\r\n") {
		return token{}, malformed("it must have three parts with a dot between them")
	}
	t := token{signed: text[:len(head)+1+len(body)]}
	header, err1 := base64url().DecodeString(head)
	payload, err2 := base64url().DecodeString(body)
	sig, err3 := base64url().DecodeString(signature)
	if err1 != nil || err2 != nil || err3 != nil {
		return token{}, malformed("its parts must be base64url without padding")
	}
	t.payload, t.signature = payload, sig
	members, ok := object(header)
	if !ok {
		return token{}, malformed("its header must be a JSON object")
	}
	if _, critical := members["crit"]; critical {
		return token{}, malformed("its header demands extensions (crit), and none are supported") // RFC 7515 §4.1.11
	}
	if !jsonString(members["alg"], &t.alg) || members["kid"] != nil && !jsonString(members["kid"], &t.kid) {
		return token{}, malformed("alg and kid of its header must be strings")
	}
	return t, nil
}

// object reads a JSON object. Not into a struct: that would take a member
// "SUB" for "sub".
func object(data []byte) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if !utf8.Valid(data) || json.Unmarshal(data, &members) != nil {
		return nil, false
	}
	return members, members != nil
}

// jsonString reads one JSON string.
func jsonString(data json.RawMessage, into *string) bool {
	return len(data) > 0 && data[0] == '"' && json.Unmarshal(data, into) == nil
}
