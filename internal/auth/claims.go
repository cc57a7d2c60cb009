package auth

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"downlink/internal/event"
)

// claims are the members of a token's payload, unread.
type claims map[string]json.RawMessage

func parseClaims(payload []byte) (claims, error) {
	c, ok := object(payload)
	if !ok {
		return nil, malformed("its payload must be a JSON object")
	}
	return c, nil
}

// checkClaims holds the registered claims (RFC 7519 §4.1) against the settings
// and the clock, and returns when the token stops being accepted.
func (v *Verifier) checkClaims(c claims, now time.Time) (time.Time, error) {
	exp, ok := c.time("exp")
	if !ok {
		return time.Time{}, malformed("exp is missing, or no number of seconds")
	}
	expires := exp.Add(v.opts.Leeway)
	if !now.Before(expires) {
		return time.Time{}, &Error{TokenExpired, "the token expired at " + clock(exp) + " and it is " + clock(now) + " here: get a new one"}
	}
	if c["nbf"] != nil {
		nbf, ok := c.time("nbf")
		if !ok {
			return time.Time{}, malformed("nbf is no number of seconds")
		}
		if now.Add(v.opts.Leeway).Before(nbf) {
			return time.Time{}, &Error{TokenTooEarly, "the token is valid from " + clock(nbf) + " and it is " + clock(now) + " here: compare the clocks"}
		}
	}
	if !c.names("iss", v.opts.Issuers) {
		return time.Time{}, &Error{WrongIssuer, "the token is from no issuer (iss) that this gateway accepts"}
	}
	if !c.names("aud", v.opts.Audiences) {
		return time.Time{}, &Error{WrongAudience, "the token is for others (aud): ask the issuer for one for this gateway"}
	}
	return expires, nil
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names reports whether a claim, a string or a list of strings, has one of the
// values; without values everything will do.
func (c claims) names(claim string, values []string) bool {
	if len(values) == 0 {
		return true
	}
	in, ok := c.list(claim)
	return ok && slices.ContainsFunc(in, func(s string) bool { return slices.Contains(values, s) })
}

// list reads a string or a list of strings.
func (c claims) list(claim string) ([]string, bool) {
	var one string
	if jsonString(c[claim], &one) {
		return []string{one}, true
	}
	var raw []json.RawMessage
	if json.Unmarshal(c[claim], &raw) != nil {
		return nil, false
	}
	list := make([]string, len(raw))
	for i := range raw {
		if !jsonString(raw[i], &list[i]) {
			return nil, false
		}
	}
	return list, true
}

// lastSecond is the end of the year 9999.
const lastSecond = 253402300799

// time reads a NumericDate (RFC 7519 §2): seconds, which may have a fraction.
func (c claims) time(claim string) (time.Time, bool) {
	seconds, err := strconv.ParseFloat(string(c[claim]), 64)
	if err != nil || !(seconds >= 0 && seconds <= lastSecond) { // the negation catches NaN
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

func (c claims) device(claim string) (string, error) {
	var device string
	if !jsonString(c[claim], &device) || event.ValidateDevice(device) != nil {
		return "", &Error{BadDevice, "the claim that names the device is missing or no device ID: 1 to 128 bytes of text that begin with neither * nor @"}
	}
	return device, nil
}

// maxGroups bounds what one token can make a shard index.
const maxGroups = 64

func (c claims) groups(claim string) ([]string, error) {
	if raw := c[claim]; raw == nil || string(raw) == "null" {
		return nil, nil
	}
	groups, ok := c.list(claim)
	if !ok {
		return nil, &Error{BadGroups, "the claim that names the groups is no list of strings"}
	}
	for _, g := range groups {
		if event.ValidateGroup(g) != nil {
			return nil, &Error{BadGroups, "the claim that names the groups holds something that is no group: 1 to 127 bytes of text"}
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) > maxGroups {
		return nil, &Error{BadGroups, "the token names more than 64 groups"}
	}
	if len(groups) == 0 {
		return nil, nil
	}
	return slices.Clip(groups), nil
}
