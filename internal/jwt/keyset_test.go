package jwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jws "github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/testkit"
)

// issuer is a key set as a test changes it.
type issuer struct {
	mu      sync.Mutex
	keys    keyring
	err     error
	takes   time.Duration
	fetches int
}

func (i *issuer) fetch(ctx context.Context) (keyring, error) {
	i.mu.Lock()
	i.fetches++
	keys, err, takes := i.keys, i.err, i.takes
	i.mu.Unlock()
	select {
	case <-time.After(takes):
		return keys, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (i *issuer) set(change func(*issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// setVerifier checks tokens by the issuer's keys, in a bubble; nobody fetches
// them yet.
func setVerifier(i *issuer) *Verifier {
	v := &Verifier{opts: Options{Claims: []string{"sub", "groups"}, Holders: Devices, Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler)}}
	v.static.Store(&fileKeys{})
	v.sets = map[string]*keySet{"": setOf(i, v.opts)}
	return v
}

// setOf is the key set of an issuer that nobody fetches yet.
func setOf(i *issuer, o Options) *keySet {
	return &keySet{
		opts: JWKSOptions{Refresh: 5 * time.Minute, MaxAge: time.Hour}, fetch: i.fetch, close: func() {},
		metrics: o.Metrics.set(o.Holders, ""), log: o.Logger, wanted: make(chan struct{}, 1),
	}
}

func runVerifier(t *testing.T, i *issuer) *Verifier {
	t.Helper()
	v := setVerifier(i)
	start(t, v)
	return v
}

// start keeps a verifier's sets fresh until the test ends.
func start(t *testing.T, v *Verifier) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := v.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); ended.Wait() })
}

func es256(t *testing.T, kid string, k *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	return sign(t, fmt.Sprintf(`{"alg":"ES256","kid":%q}`, kid), payload(t, claims), jws.SigningMethodES256, k)
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ring(t *testing.T, kid string, k *ecdsa.PrivateKey) keyring {
	t.Helper()
	made, err := publicKey(kid, k.Public())
	if err != nil {
		t.Fatal(err)
	}
	return keyring{made}
}

// outcome is a failure, or "later".
func outcome(v *Verifier, token string) string {
	_, _, err := v.Check(context.Background(), token)
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Failure)
	}
	if errors.Is(err, ErrKeysUnavailable) {
		return "later"
	}
	return fmt.Sprint(err)
}

const accepted = "<nil>"

// TestMadeUpKeyIDs: ten thousand of them cost one fetch in each cool-down, and
// a good token waits for none of it.
func TestMadeUpKeyIDs(t *testing.T) {
	k := ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: ring(t, "a", k)}
		v := runVerifier(t, i)
		synctest.Wait()
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		i.set(func(i *issuer) { i.takes = 4 * time.Second })
		before := i.count()
		tokens := make([]string, 10_000)
		for n := range tokens {
			tokens[n] = fmt.Sprintf("%s.%s.AAAA", encode(fmt.Sprintf(`{"alg":"ES256","kid":"%d"}`, n)), encode(`{"iat":1}`))
		}
		var all sync.WaitGroup
		for _, token := range tokens[:1000] {
			all.Go(func() {
				if got := outcome(v, token); got != string(KeyUnknown) {
					t.Errorf("a made-up key: %s", got)
				}
			})
		}
		began := time.Now()
		synctest.Wait() // they wait for the fetch
		if got := outcome(v, es256(t, "a", k, nil)); got != accepted || time.Since(began) != 0 {
			t.Errorf("a good token: %s after %v", got, time.Since(began))
		}
		all.Wait()
		for some := range slices.Chunk(tokens[1000:], 300) { // the flood goes on for 30 s
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			for _, token := range some {
				_ = outcome(v, token)
			}
		}
		took := time.Since(began)
		if n := i.count() - before; n < 2 || n > int(took/coolDown)+1 {
			t.Errorf("%d fetches in %v", n, took)
		}
	})
}

// TestMadeUpKeyIDsOverHTTP: the same with a real server, which hangs after it has
// answered once.
func TestMadeUpKeyIDsOverHTTP(t *testing.T) {
	server := testkit.NewIssuer(t, "one")
	v := verifier(t, func(o *Options) {
		o.JWKS = []JWKSOptions{{URL: server.URL, Refresh: time.Hour, MaxAge: time.Hour}}
		o.HMACSecretFile = ""
	})
	began := time.Now()
	most := func() int { return 1 + int(time.Since(began)/(10*time.Second)) }
	start(t, v)
	testkit.Eventually(t, "the set is fetched", v.Ready)
	server.Be(testkit.Hangs)
	good := server.Token("one", "pos-1", time.Hour, "")
	var all sync.WaitGroup
	for worker := range 20 {
		all.Go(func() {
			for n := range 500 {
				if server.Fetches() > most() {
					return // each of them would wait
				}
				made := fmt.Sprintf("%s.%s.AAAA", encode(fmt.Sprintf(`{"alg":"EdDSA","kid":"%d-%d"}`, worker, n)), encode(`{"iat":1}`))
				if got := outcome(v, made); got != string(KeyUnknown) {
					t.Errorf("a made-up key: %s", got)
					return
				}
			}
		})
	}
	for range 200 {
		if got := outcome(v, good); got != accepted {
			t.Fatalf("a good token: %s", got)
		}
	}
	all.Wait()
	if n := server.Fetches(); n > most() {
		t.Errorf("%d fetches in %v, at most %d may be", n, time.Since(began), most())
	}
}

// TestNewKey: the first token of a key that the issuer has just begun to use
// brings it here. A younger one, within the cool-down, is asked to come back,
// and an older one isn't.
func TestNewKey(t *testing.T) {
	k := ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: ring(t, "a", k)}
		v := runVerifier(t, i)
		synctest.Wait()
		time.Sleep(20 * time.Second) //nolint:forbidigo // in a bubble
		other := ecKey(t)
		b := es256(t, "b", other, map[string]any{"iat": time.Now().Unix()})
		old := es256(t, "b", other, map[string]any{"iat": time.Now().Add(-time.Minute).Unix()})
		if got := outcome(v, es256(t, "b", other, map[string]any{"iat": time.Now().Add(-time.Minute).Unix()})); got != string(KeyUnknown) {
			t.Errorf("a key that doesn't exist: %s", got)
		}
		i.set(func(i *issuer) { i.keys = append(i.keys, ring(t, "b", other)...) })
		if got := outcome(v, old); got != string(KeyUnknown) {
			t.Errorf("an old token of an unknown key: %s", got)
		}
		if got := outcome(v, b); got != "later" {
			t.Errorf("a new token of an unknown key: %s", got)
		}
		time.Sleep(coolDown) //nolint:forbidigo // in a bubble
		if got := outcome(v, b); got != accepted {
			t.Errorf("after the cool-down: %s", got)
		}
		if n := i.count(); n != 3 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestReplacedKey: under the same kid, it is noticed within the interval.
func TestReplacedKey(t *testing.T) {
	k, other := ecKey(t), ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: ring(t, "a", k)}
		v := runVerifier(t, i)
		synctest.Wait()
		i.set(func(i *issuer) { i.keys = ring(t, "a", other) })
		time.Sleep(5 * time.Minute) //nolint:forbidigo // in a bubble
		if a, b := outcome(v, es256(t, "a", k, nil)), outcome(v, es256(t, "a", other, nil)); a != string(BadSignature) || b != accepted {
			t.Errorf("the old one: %s, the new one: %s", a, b)
		}
	})
}

// TestIssuerAway: without keys devices come back later; fetched keys count for
// MaxAge and no longer; when the issuer is back it is noticed soon.
func TestIssuerAway(t *testing.T) {
	k := ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("connection refused")
		i := &issuer{keys: ring(t, "a", k), err: away}
		v := runVerifier(t, i)
		synctest.Wait()
		token := func() string { return es256(t, "a", k, nil) }
		if got := outcome(v, token()); got != "later" || v.Ready() {
			t.Errorf("before the first fetch: %s, ready %v", got, v.Ready())
		}
		if got := outcome(v, sign(t, `{"alg":"HS256"}`, payload(t, nil), jws.SigningMethodHS256, secret)); got != string(BadAlgorithm) {
			t.Errorf("a token that no key set can check: %s", got)
		}
		i.set(func(i *issuer) { i.err = nil })
		time.Sleep(31 * time.Second) //nolint:forbidigo // in a bubble
		if got := outcome(v, token()); got != accepted || !v.Ready() {
			t.Errorf("after the first fetch: %s, ready %v", got, v.Ready())
		}
		time.Sleep(6 * time.Minute) //nolint:forbidigo // in a bubble; the last good fetch is at most 5 minutes old
		i.set(func(i *issuer) { i.err = away })
		time.Sleep(54 * time.Minute) //nolint:forbidigo // in a bubble
		if got := outcome(v, token()); got != accepted {
			t.Errorf("after 54 minutes: %s", got)
		}
		time.Sleep(7 * time.Minute) //nolint:forbidigo // in a bubble
		if got := outcome(v, token()); got != "later" || v.Ready() {
			t.Errorf("after more than an hour: %s, ready %v", got, v.Ready())
		}
		if n := testutil.ToFloat64(v.opts.Metrics.fetches.WithLabelValues("devices", "", fetchFailed)); n < 60 {
			t.Errorf("%v failed fetches are counted in an hour", n)
		}
		i.set(func(i *issuer) { i.err = nil })
		time.Sleep(31 * time.Second) //nolint:forbidigo // in a bubble
		if got := outcome(v, token()); got != accepted {
			t.Errorf("back again: %s", got)
		}
	})
}

// TestSlowIssuer: a token that needs a fetch waits a bounded time for it, even
// if nobody fetches.
func TestSlowIssuer(t *testing.T) {
	k := ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: ring(t, "a", k), takes: time.Hour}
		v := runVerifier(t, i)
		began := time.Now()
		if got := outcome(v, es256(t, "a", k, nil)); got != "later" || time.Since(began) > fetchTimeout {
			t.Errorf("%s after %v", got, time.Since(began))
		}
		began = time.Now()
		if got := outcome(setVerifier(i), es256(t, "a", k, nil)); got != "later" || time.Since(began) > fetchTimeout {
			t.Errorf("with nobody who fetches: %s after %v", got, time.Since(began))
		}
	})
}

// TestKeysOfAFileBesideTheSet: they count while the set is away, and a token
// of neither is told to come back as long as the set might have it.
func TestKeysOfAFileBesideTheSet(t *testing.T) {
	k, other := ecKey(t), ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: ring(t, "a", k), err: errors.New("away")}
		v := runVerifier(t, i)
		v.static.Store(&fileKeys{keys: ring(t, "", other)})
		synctest.Wait()
		if !v.Ready() {
			t.Error("keys of files don't count")
		}
		if got := outcome(v, es256(t, "x", other, nil)); got != accepted {
			t.Errorf("by a key of the file: %s", got)
		}
		if got := outcome(v, es256(t, "a", k, nil)); got != "later" {
			t.Errorf("by a key of the set: %s", got)
		}
		i.set(func(i *issuer) { i.err = nil })
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		if got := outcome(v, es256(t, "a", k, nil)); got != accepted {
			t.Errorf("by a key of the set, which is there: %s", got)
		}
		if got := outcome(v, es256(t, "a", ecKey(t), nil)); got != string(BadSignature) {
			t.Errorf("by neither: %s", got)
		}
	})
}

// TestFetchTroubleIsSaidOnce, and its end.
func TestFetchTroubleIsSaidOnce(t *testing.T) {
	k := ecKey(t)
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		i := &issuer{keys: ring(t, "a", k), err: errors.New("away")}
		s := setOf(i, Options{Metrics: NewMetrics(nil), Logger: slog.New(slog.NewTextHandler(&said, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { s.run(ctx) })
		time.Sleep(10 * time.Minute) //nolint:forbidigo // in a bubble
		i.set(func(i *issuer) { i.err = nil })
		time.Sleep(10 * time.Minute) //nolint:forbidigo // in a bubble
		cancel()
		ended.Wait()
		if a, b := strings.Count(said.String(), "trying on"), strings.Count(said.String(), "fetched again"); a != 1 || b != 1 {
			t.Errorf("said:\n%s", said.String())
		}
	})
}
