package testkit

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An Issuer serves a key set, and misbehaves on command.
type Issuer struct {
	URL string // of the key set

	tb      testing.TB
	fetches atomic.Int64
	over    chan struct{}

	mu     sync.Mutex
	manner string
	keys   map[string]ed25519.PrivateKey // by kid
}

// Manners of an Issuer. Whoever is Good answers with his keys.
const (
	Good     = ""
	Hangs    = "hangs"     // doesn't answer
	Drips    = "drips"     // answers a byte at a time
	Fails    = "fails"     // 500
	Garbage  = "garbage"   // no JSON
	Empty    = "empty"     // no keys
	Huge     = "huge"      // more than a key set can have
	Redirect = "redirects" // to itself, for ever
	Cuts     = "cuts"      // closes in the middle
)

// NewIssuer serves a set with one key of the ID until the test ends.
func NewIssuer(tb testing.TB, kid string) *Issuer {
	tb.Helper()
	i := &Issuer{tb: tb, over: make(chan struct{}), keys: make(map[string]ed25519.PrivateKey)}
	i.Replace(kid)
	server := httptest.NewServer(i)
	tb.Cleanup(server.Close)
	tb.Cleanup(func() { close(i.over) }) // before Close, which waits for answers
	i.URL = server.URL + "/keys"
	return i
}

// Replace makes a new key of the ID.
func (i *Issuer) Replace(kid string) {
	i.tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		i.tb.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[kid] = key
}

// Be changes the manner.
func (i *Issuer) Be(manner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.manner = manner
}

// Fetches is how often the set was asked for.
func (i *Issuer) Fetches() int { return int(i.fetches.Load()) }

// Token is a device token by the key of the ID, with further claims, such as
// `,"iss":"a"`.
func (i *Issuer) Token(kid, device string, life time.Duration, further string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := i.keys[kid]
	return jwt(fmt.Sprintf(`{"alg":"EdDSA","kid":%q}`, kid), device, life, further, func(text []byte) []byte {
		return ed25519.Sign(key, text)
	})
}

func (i *Issuer) set() string {
	var keys []string
	for kid, key := range i.keys {
		one := KeySet(key, kid)
		keys = append(keys, one[len(`{"keys":[`):len(one)-len(`]}`)])
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.fetches.Add(1)
	i.mu.Lock()
	manner, set := i.manner, i.set()
	i.mu.Unlock()
	var err error
	switch manner {
	case Hangs:
		i.pause(r, time.Hour)
	case Drips:
		for n := 0; err == nil && i.pause(r, 50*time.Millisecond); n++ {
			_, err = fmt.Fprint(w, set[n%len(set):n%len(set)+1])
			_ = http.NewResponseController(w).Flush() // whoever has gone is noticed by the next pause
		}
	case Fails:
		http.Error(w, "broken", http.StatusInternalServerError)
	case Garbage:
		_, err = fmt.Fprint(w, "<html>log in</html>")
	case Empty:
		_, err = fmt.Fprint(w, `{"keys":[]}`)
	case Huge:
		_, err = fmt.Fprint(w, set+strings.Repeat(" ", 2<<20))
	case Redirect:
		http.Redirect(w, r, "/keys", http.StatusFound)
	case Cuts:
		w.Header().Set("Content-Length", fmt.Sprint(2*len(set)))
		_, err = fmt.Fprint(w, set)
	default:
		_, err = fmt.Fprint(w, set)
	}
	_ = err // whoever asked has gone
}

// pause waits; false when nobody waits for the answer any more.
func (i *Issuer) pause(r *http.Request, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
	case <-i.over:
	}
	return false
}
