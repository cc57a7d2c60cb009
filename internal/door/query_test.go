package door

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzQuery: parameters are what net/url takes them for.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "device=a", "device=a&device=b&group=x%20y&+=%2B", "a;b=c&d", "%zz=1&a=%zz&=x&b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		want, _ := url.ParseQuery(query) // what it can read is in want all the same
		got := url.Values{}
		eachParameter(query, func(name, value string) { got.Add(name, value) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-net/url +ours):\n%s", query, diff)
		}
	})
}
