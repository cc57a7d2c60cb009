// Package auth owns the proof of who a device is: it finds the token in a
// request, checks it against the gateway's keys, and says device, groups and
// expiry. It doesn't decide what is said to the client beyond a failure's text,
// and knows no session. Its invariant: nothing of a token is used before its
// signature was checked with a key whose own type allows the algorithm, and no
// part of a token gets into an error, a log line or a metric.
package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// Options for a Verifier. At least one source of keys is needed.
type Options struct {
	HMACSecretFile string // one secret a line
	PublicKeysFile string // PEM: public keys or certificates
	JWKS           JWKSOptions

	Issuers   []string      // accepted values of iss; empty: not checked
	Audiences []string      // of which aud must name one; empty: not checked
	Leeway    time.Duration // allowed difference of the clocks, for exp and nbf

	DeviceClaim string // holds the device ID, a string
	GroupsClaim string // holds the groups, a list of strings or one string
	Cookie      string // name of the cookie that may hold the token

	Metrics *Metrics
	Logger  *slog.Logger
}

// An Identity is what a token proves. It shares no memory with the token.
type Identity struct {
	Device  string
	Groups  []string  // sorted, none twice
	Expires time.Time // from then on the token isn't accepted any more: exp and the leeway
}

// ErrKeysUnavailable says that a token can't be judged now, because the key set
// hasn't been fetched, or not recently enough. It helps to try again.
var ErrKeysUnavailable = errors.New("the keys that tokens are checked with could not be fetched; try again later")

// A Verifier checks tokens. Safe for concurrent use.
type Verifier struct {
	opts   Options
	static atomic.Pointer[fileKeys]
	remote *keySet // nil without a JWKS address
}

// fileKeys are the keys from files.
type fileKeys struct {
	keys keyring
	sum  [sha256.Size]byte // of the files' content
}

// New reads the key files. An error names the file and what is wrong with it.
func New(o Options) (*Verifier, error) {
	v := &Verifier{opts: o}
	if _, err := v.Load(); err != nil {
		return nil, err
	}
	if o.JWKS.URL != "" {
		var err error
		if v.remote, err = newKeySet(o.JWKS, o.Metrics, o.Logger); err != nil {
			return nil, err
		}
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

// Run keeps the key set fresh until ctx ends; then it returns nil.
func (v *Verifier) Run(ctx context.Context) error {
	if v.remote != nil {
		v.remote.run(ctx)
	}
	return nil
}

// Ready reports whether there are keys: those of files always are.
func (v *Verifier) Ready() bool {
	if v.remote == nil || len(v.static.Load().keys) > 0 {
		return true
	}
	return v.remote.current() != nil
}

// Identify says which device a request comes from, and until when. The error
// is an *Error, or wraps ErrKeysUnavailable. On success the request loses its
// headers with the token: it may live as long as the stream.
func (v *Verifier) Identify(r *http.Request) (Identity, error) {
	token, err := tokenOf(r, v.opts.Cookie)
	if err == nil {
		var id Identity
		if id, err = v.check(r.Context(), token); err == nil {
			r.Header.Del("Authorization")
			r.Header.Del("Cookie")
			return id, nil
		}
	}
	v.opts.Metrics.failed(err)
	return Identity{}, err
}

// check verifies a token from the outside in: form, key, signature, claims.
func (v *Verifier) check(ctx context.Context, text string) (Identity, error) {
	t, err := parseToken(text)
	if err != nil {
		return Identity{}, err
	}
	if err := v.checkSignature(ctx, t); err != nil {
		return Identity{}, err
	}
	c, err := v.parseClaims(t.payload)
	if err != nil {
		return Identity{}, err
	}
	expires, err := v.checkClaims(c, time.Now())
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Expires: expires}
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

// checkSignature looks for the key that has signed the token.
func (v *Verifier) checkSignature(ctx context.Context, t token) error {
	static := v.static.Load().keys
	keys := static.find(t.alg, t.kid)
	why := error(&Error{BadSignature, "the signature is not that of a key of this gateway"})
	if v.remote != nil && !t.symmetric() {
		fetched, err := v.remote.find(ctx, t)
		if err != nil {
			why = err // unless a key of a file has signed it
		}
		keys = append(keys, fetched...)
	} else if len(keys) == 0 {
		why = static.whyNone(t)
	}
	if len(keys) > maxTried {
		return &Error{KeyUnknown, "the token names no key (kid), and there are too many keys to try each"}
	}
	for _, k := range keys {
		if k.verify(t) {
			return nil
		}
	}
	return why
}
