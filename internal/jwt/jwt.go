// Package jwt owns signed tokens (JSON Web Tokens): their form, the keys that
// they are checked with, from files and from key sets of issuers, and the claims
// that say who they are for and until when. What else a token says is its
// caller's business: it names no device and grants nothing. Its invariant:
// nothing of a token is used before its signature was checked, but to choose the
// keys that it is checked with, and no part of it gets into an error, a log line
// or a metric.
package jwt

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

	Claims []string // further claims that count, for Token.Claim

	Holders Holders // whose tokens these are, for metrics and log lines
	Metrics *Metrics
	Logger  *slog.Logger
}

// Holders are whose tokens a Verifier checks.
type Holders string

// The holders.
const (
	Devices    Holders = "devices"
	Publishers Holders = "publishers"
)

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
		s, err := newKeySet(jwks, o)
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
	secrets, err := readFile(v.opts.HMACSecretFile)
	if err != nil {
		return false, err
	}
	public, err := readFile(v.opts.PublicKeysFile)
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

// Parse takes a token apart. Nothing of it is proven then. The error is an
// *Error.
func (v *Verifier) Parse(text string) (*Token, error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, err
	}
	if t.claims, err = parseClaims(t.payload, v.opts.Claims); err != nil {
		return nil, err
	}
	return t, nil
}

// Prove checks a token, from the outside in: key, signature, registered claims.
// From expires on it isn't accepted any more. The error is an *Error, or
// ErrKeysUnavailable.
func (v *Verifier) Prove(ctx context.Context, t *Token) (expires time.Time, err error) {
	if err := v.checkSignature(ctx, t); err != nil {
		return time.Time{}, err
	}
	return v.checkClaims(t.claims, time.Now())
}

// Check parses and proves a token, and returns its payload, a JSON object.
// Errors are those of Prove.
func (v *Verifier) Check(ctx context.Context, text string) (payload []byte, expires time.Time, err error) {
	t, err := v.Parse(text)
	if err != nil {
		return nil, time.Time{}, err
	}
	if expires, err = v.Prove(ctx, t); err != nil {
		return nil, time.Time{}, err
	}
	return t.payload, expires, nil
}

// maxTried bounds the work for one token that names no key.
const maxTried = 16

// checkSignature looks for the key that has signed the token, among those of
// the issuer that it names: whose keys they are is all that is believed of it
// so far. An issuer with a key set of its own is vouched for by that alone, and
// that set vouches for nobody else.
func (v *Verifier) checkSignature(ctx context.Context, t *Token) error {
	issuer := t.claims.issuer()
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
		fetched, err := set.find(ctx, t)
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
