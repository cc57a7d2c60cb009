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

func TestReadable(t *testing.T) {
	for query, want := range map[string]bool{
		"": true, "device=a&b": true, "a=%3B%25": true, "a%20b=c": true, "&&": true,
		"a=%": false, "a=%zz&device=b": false, "%zz=1": false, "a=b;c=d": false, "x&a;b": false,
	} {
		if readable(query) != want {
			t.Errorf("%q: %v", query, !want)
		}
	}
}
