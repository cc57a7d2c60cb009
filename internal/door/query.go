package door

import (
	"net/url"
	"strings"
)

// eachParameter calls f for each parameter of a query, in order: those that
// url.ParseQuery would give, but without a map of them, which was a quarter of
// what taking a connection in allocated. Values may be parts of query.
func eachParameter(query string, f func(name, value string)) {
	for part := range strings.SplitSeq(query, "&") {
		if part == "" || strings.Contains(part, ";") {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			continue
		}
		if value, err = url.QueryUnescape(value); err == nil {
			f(name, value)
		}
	}
}

// readable reports whether every parameter of a query can be read. What can't
// be is passed over by net/url, and a credential that was passed over would let
// a weaker one decide.
func readable(query string) bool {
	if !strings.ContainsAny(query, "%;") {
		return true
	}
	_, err := url.ParseQuery(query)
	return err == nil
}
