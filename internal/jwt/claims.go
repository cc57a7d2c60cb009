package jwt

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// claims are the members of a token's payload that count, unread.
type claims struct {
	exp, nbf, iat, iss, aud Value
	further                 []Value // those of Options.Claims
}

func parseClaims(payload []byte, further []string) (claims, error) {
	c := claims{further: make([]Value, len(further))}
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
		for i, wanted := range further { // one of those above may be meant
			if string(name) == wanted {
				take(&c.further[i], value, &twice)
			}
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
func take(to *Value, value []byte, twice *bool) {
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
		return time.Time{}, failed(Expired, "the token expired at "+clock(exp)+" and it is "+clock(now)+" here: get a new one")
	}
	if c.nbf != nil {
		nbf, ok := numericDate(c.nbf)
		if !ok {
			return time.Time{}, malformed("nbf is no number of seconds")
		}
		if now.Add(v.opts.Leeway).Before(nbf) {
			return time.Time{}, failed(TooEarly, "the token is valid from "+clock(nbf)+" and it is "+clock(now)+" here: compare the clocks")
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
	iss, _ := c.iss.Text()
	return iss
}

func errIssuer() error {
	return failed(WrongIssuer, "the token is from no issuer (iss) that this gateway accepts")
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names reports whether a claim, a string or a list of strings, has one of the
// values; without values everything will do.
func names(claim Value, values []string) bool {
	if len(values) == 0 {
		return true
	}
	in, ok := claim.Texts()
	return ok && slices.ContainsFunc(in, func(s string) bool { return slices.Contains(values, s) })
}

// lastSecond is the end of the year 9999.
const lastSecond = 253402300799

// numericDate reads seconds since 1970, which may have a fraction (RFC 7519 §2).
func numericDate(claim Value) (time.Time, bool) {
	seconds, err := strconv.ParseFloat(string(claim), 64)
	if err != nil || !(seconds >= 0 && seconds <= lastSecond) { // the negation catches NaN
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true
}
