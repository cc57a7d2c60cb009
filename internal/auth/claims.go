package auth

import (
	"math"
	"slices"
	"strconv"
	"time"

	"downlink/internal/event"
)

// claims are the members of a token's payload that count, unread; nil: there
// is none.
type claims struct {
	exp, nbf, iat, iss, aud []byte
	device, groups          []byte
}

func (v *Verifier) parseClaims(payload []byte) (claims, error) {
	var c claims
	var twice bool
	ok := members(payload, func(name, value []byte) {
		switch string(name) {
		case "exp":
			take(&c.exp, value, &twice)
		case "nbf":
			take(&c.nbf, value, &twice)
		case "iat":
			take(&c.iat, value, &twice)
		case "iss":
			take(&c.iss, value, &twice)
		case "aud":
			take(&c.aud, value, &twice)
		}
		// One of those above may be meant.
		if string(name) == v.opts.DeviceClaim {
			take(&c.device, value, &twice)
		}
		if string(name) == v.opts.GroupsClaim {
			take(&c.groups, value, &twice)
		}
	})
	switch {
	case !ok:
		return claims{}, malformed("its payload must be a JSON object")
	case twice:
		return claims{}, malformed("a claim that counts stands in it twice")
	}
	return c, nil
}

// take keeps a member's value and notes if it had one: two parsers could each
// believe another one of the two (RFC 8725 §2.4).
func take(to *[]byte, value []byte, twice *bool) {
	*twice = *twice || *to != nil
	*to = value
}

// checkClaims holds the registered claims (RFC 7519 §4.1) against the settings
// and the clock, and returns when the token stops being accepted.
func (v *Verifier) checkClaims(c claims, now time.Time) (time.Time, error) {
	exp, ok := numericDate(c.exp)
	if !ok {
		return time.Time{}, malformed("exp is missing, or no number of seconds")
	}
	expires := exp.Add(v.opts.Leeway)
	if !now.Before(expires) {
		return time.Time{}, failed(TokenExpired, "the token expired at "+clock(exp)+" and it is "+clock(now)+" here: get a new one")
	}
	if c.nbf != nil {
		nbf, ok := numericDate(c.nbf)
		if !ok {
			return time.Time{}, malformed("nbf is no number of seconds")
		}
		if now.Add(v.opts.Leeway).Before(nbf) {
			return time.Time{}, failed(TokenTooEarly, "the token is valid from "+clock(nbf)+" and it is "+clock(now)+" here: compare the clocks")
		}
	}
	if !v.accepts(c.issuer()) {
		return time.Time{}, errIssuer()
	}
	if !names(c.aud, v.opts.Audiences) {
		return time.Time{}, failed(WrongAudience, "the token is for others (aud): ask the issuer for one for this gateway")
	}
	return expires, nil
}

// issuer is what the token says of its issuer; empty if it says nothing.
func (c claims) issuer() string {
	iss, _ := stringOf(c.iss)
	return iss
}

func errIssuer() error {
	return failed(WrongIssuer, "the token is from no issuer (iss) that this gateway accepts")
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names reports whether a claim, a string or a list of strings, has one of the
// values; without values everything will do.
func names(claim []byte, values []string) bool {
	if len(values) == 0 {
		return true
	}
	in, ok := stringsOf(claim)
	return ok && slices.ContainsFunc(in, func(s string) bool { return slices.Contains(values, s) })
}

// stringsOf reads a string or a list of strings.
func stringsOf(claim []byte) ([]string, bool) {
	if one, ok := stringOf(claim); ok {
		return []string{one}, true
	}
	var list []string
	all := true
	ok := elements(claim, func(value []byte) {
		s, ok := stringOf(value)
		all = all && ok
		list = append(list, s)
	})
	return list, ok && all
}

// lastSecond is the end of the year 9999.
const lastSecond = 253402300799

// numericDate reads seconds since 1970, which may have a fraction (RFC 7519 §2).
func numericDate(claim []byte) (time.Time, bool) {
	seconds, err := strconv.ParseFloat(string(claim), 64)
	if err != nil || !(seconds >= 0 && seconds <= lastSecond) { // the negation catches NaN
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

func (c claims) readDevice() (string, error) {
	device, ok := stringOf(c.device)
	if !ok || event.ValidateDevice(device) != nil {
		return "", failed(BadDevice, "the claim that names the device is missing or no device ID: 1 to 128 bytes of text that begin with neither * nor @")
	}
	return device, nil
}

// maxGroups bounds what one credential can make a shard index.
const maxGroups = 64

func (c claims) readGroups() ([]string, error) {
	if c.groups == nil || string(c.groups) == "null" {
		return nil, nil
	}
	groups, ok := stringsOf(c.groups)
	if !ok {
		return nil, failed(BadGroups, "the claim that names the groups is no list of strings")
	}
	groups, why := tidy(groups)
	if why != "" {
		return nil, failed(BadGroups, "the claim that names the groups "+why)
	}
	return groups, nil
}

// tidy is groups sorted, none twice, or why they can't be; that completes the
// sentence "<what names them> …".
func tidy(groups []string) (tidied []string, why string) {
	for _, g := range groups {
		if event.ValidateGroup(g) != nil {
			return nil, "holds something that is no group: 1 to 127 bytes of text"
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) > maxGroups {
		return nil, "names more than 64 groups"
	}
	return slices.Clip(groups), ""
}
