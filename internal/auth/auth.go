// Package auth owns the proof of who a device is: it finds the credential in a
// request (methods.go: a client certificate, a token, or the word of a proxy
// in front), checks it, and says device, groups and expiry. It doesn't decide
// what is said to the client beyond a failure's text, and knows no session. Its
// invariant: the first credential that is offered decides, and none is believed
// before it was proven; of a JWT nothing is used before its signature was
// checked, but to choose the keys that it is checked with. No part of a token
// gets into an error, a log line or a metric.
package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options for a Verifier. At least one source of keys is needed.
type Options struct {
	HMACSecretFile string        // one secret a line
	PublicKeysFile string        // PEM: public keys or certificates
	JWKS           []JWKSOptions // each of another issuer, at most one of none

	Issuers   []string      // accepted values of iss; empty: not checked
	Audiences []string      // of which aud must name one; empty: not checked
	Leeway    time.Duration // allowed difference of the clocks, for exp and nbf

	DeviceClaim string // holds the device ID, a string
	GroupsClaim string // holds the groups, a list of strings or one string

	Metrics *Metrics
	Logger  *slog.Logger
}

// An Identity is what a credential proves. It shares no memory with a token.
type Identity struct {
	By      string // the method that has proven it: "jwt", "tokens", "mtls" or "proxy"
	Device  string
	Groups  []string  // sorted, none twice
	Expires time.Time // from then on the credential isn't accepted any more; zero: it is for ever
	// Valid reports whether a credential that was accepted once still stands:
	// it is asked again when files have changed. Nil: it isn't asked. Cheap, and
	// safe for concurrent use.
	Valid func() bool
}

// ErrKeysUnavailable says that a token can't be judged now, because the key set
// hasn't been fetched, or not recently enough. It helps to try again.
var ErrKeysUnavailable = errors.New("the keys that tokens are checked with could not be fetched; try again later")

// A Verifier checks tokens. Safe for concurrent use.
type Verifier struct {
	opts   Options
	static atomic.Pointer[fileKeys]
	sets   map[string]*keySet // by the issuer that they are bound to; "": for all others
}

// fileKeys are the keys from files.
type fileKeys struct {
	keys keyring
	sum  [sha256.Size]byte // of the files' content
}

// New reads the key files. An error names the file and what is wrong with it.
func New(o Options) (*Verifier, error) {
	v := &Verifier{opts: o, sets: make(map[string]*keySet, len(o.JWKS))}
	if _, err := v.Load(); err != nil {
		return nil, err
	}
	for _, jwks := range o.JWKS {
		if v.sets[jwks.Issuer] != nil {
			return nil, errors.New("two key sets are for the same issuer; name an issuer once")
		}
		s, err := newKeySet(jwks, o.Metrics, o.Logger)
		if err != nil {
			return nil, err
		}
		v.sets[jwks.Issuer] = s
	}
	return v, nil
}

// Load reads the key files again and reports whether they have changed. After
// an error the keys that were loaded before stay in use.
func (v *Verifier) Load() (changed bool, err error) {
	secrets, err := readFile(v.opts.HMACSecretFile, maxFileBytes)
	if err != nil {
		return false, err
	}
	public, err := readFile(v.opts.PublicKeysFile, maxFileBytes)
	if err != nil {
		return false, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d:", len(secrets)) //nolint:errcheck // a hash takes everything
	h.Write(secrets)
	h.Write(public)
	now := &fileKeys{sum: [sha256.Size]byte(h.Sum(nil))}
	if before := v.static.Load(); before != nil && before.sum == now.sum {
		return false, nil
	}
	if now.keys, err = parseFiles(v.opts, secrets, public); err != nil {
		return false, err
	}
	v.static.Store(now)
	return true, nil
}

func parseFiles(o Options, secrets, public []byte) (keyring, error) {
	var keys keyring
	if o.HMACSecretFile != "" {
		k, err := parseSecrets(secrets)
		if err != nil {
			return nil, fmt.Errorf("%s %w", o.HMACSecretFile, err)
		}
		keys = append(keys, k...)
	}
	if o.PublicKeysFile != "" {
		k, err := parsePublicKeys(public)
		if err != nil {
			return nil, fmt.Errorf("%s %w", o.PublicKeysFile, err)
		}
		keys = append(keys, k...)
	}
	return keys, nil
}

// Run keeps the key sets fresh until ctx ends; then it returns nil.
func (v *Verifier) Run(ctx context.Context) error {
	var sets sync.WaitGroup
	for _, s := range v.sets {
		sets.Go(func() { s.run(ctx) })
	}
	sets.Wait()
	return nil
}

// Ready reports whether there are keys: those of files always are, and of
// several key sets one is enough.
func (v *Verifier) Ready() bool {
	if len(v.sets) == 0 || len(v.static.Load().keys) > 0 {
		return true
	}
	for _, s := range v.sets {
		if s.current() != nil {
			return true
		}
	}
	return false
}

// Check verifies a JWT. The error is an *Error, or a *LaterError that wraps
// ErrKeysUnavailable.
func (v *Verifier) Check(ctx context.Context, text string) (Identity, error) {
	t, err := parseToken(text)
	if err != nil {
		return Identity{}, err
	}
	c, err := v.parseClaims(t.payload)
	if err != nil {
		return Identity{}, err
	}
	id, err := v.judge(ctx, t, c)
	if err != nil {
		claimed, _ := stringOf(c.device)
		return Identity{}, claiming(claimed, err)
	}
	return id, nil
}

// Claims verifies a JWT that needn't be a device's, and returns its payload, a
// JSON object, and from when on it isn't accepted any more. Errors are those of
// Check.
func (v *Verifier) Claims(ctx context.Context, text string) (payload []byte, expires time.Time, err error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, time.Time{}, err
	}
	c, err := v.parseClaims(t.payload)
	if err != nil {
		return nil, time.Time{}, err
	}
	expires, err = v.prove(ctx, t, c)
	return t.payload, expires, err
}

// prove goes from the outside in: key, signature, registered claims.
func (v *Verifier) prove(ctx context.Context, t token, c claims) (expires time.Time, err error) {
	if err := v.checkSignature(ctx, t, c); err != nil {
		return time.Time{}, err
	}
	return v.checkClaims(c, time.Now())
}

// judge proves the token, and reads what it says of a device.
func (v *Verifier) judge(ctx context.Context, t token, c claims) (Identity, error) {
	expires, err := v.prove(ctx, t, c)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{By: "jwt", Expires: expires}
	if id.Device, err = c.readDevice(); err != nil {
		return Identity{}, err
	}
	if id.Groups, err = c.readGroups(); err != nil {
		return Identity{}, err
	}
	return id, nil
}

// maxTried bounds the work for one token that names no key.
const maxTried = 16

// checkSignature looks for the key that has signed the token, among those of
// the issuer that it names: whose keys they are is all that is believed of it
// so far. An issuer with a key set of its own is vouched for by that alone, and
// that set vouches for nobody else.
func (v *Verifier) checkSignature(ctx context.Context, t token, c claims) error {
	issuer := c.issuer()
	set, static := v.sets[issuer], v.static.Load().keys
	switch {
	case issuer != "" && set != nil:
		static = nil
	case v.sets[""] == nil && len(static) == 0:
		return errIssuer()
	default:
		set = v.sets[""]
	}
	keys := static.find(t.alg, t.kid)
	why := error(failed(BadSignature, "the signature is not that of a key of this gateway"))
	if set != nil && !t.symmetric() {
		fetched, err := set.find(ctx, t, c)
		if err != nil {
			why = err // unless a key of a file has signed it
		}
		keys = append(keys, fetched...)
	} else if len(keys) == 0 {
		why = static.whyNone(t)
	}
	if len(keys) > maxTried {
		return failed(KeyUnknown, "the token names no key (kid), and there are too many keys to try each")
	}
	for _, k := range keys {
		if k.verify(t) {
			return nil
		}
	}
	return why
}

// accepts reports whether an issuer is one whose tokens count.
func (v *Verifier) accepts(issuer string) bool {
	return len(v.opts.Issuers) == 0 || slices.Contains(v.opts.Issuers, issuer) || issuer != "" && v.sets[issuer] != nil
}
