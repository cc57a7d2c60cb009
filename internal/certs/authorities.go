package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"downlink/internal/reload"
)

// AuthorityOptions say who vouches for the certificates of clients.
type AuthorityOptions struct {
	CAFile  string        // PEM; each certificate in it is trusted by itself
	CRLFile string        // PEM or DER, see parseLists; empty: nothing is revoked
	Grace   time.Duration // how long a list counts after it was due to be replaced
	Metrics *Metrics
}

// Authorities are who vouches for the certificates of clients, and what they
// have revoked. Safe for concurrent use.
type Authorities struct {
	opts AuthorityOptions
	now  atomic.Pointer[trust]
}

// trust is what the files say.
type trust struct {
	pool    *x509.CertPool
	anchors map[[sha256.Size]byte]bool     // by the certificate's digest
	named   map[string][]*x509.Certificate // by the subject as it stands in certificates (DER)
	lists   revocations
	sum     [sha256.Size]byte // of both files
}

// Why a certificate isn't accepted.
var (
	ErrUntrusted   = errors.New("the certificate is not from a trusted authority, or not for clients")
	ErrExpired     = errors.New("the certificate has expired, or is not valid yet")
	ErrRevoked     = errors.New("the certificate was revoked")
	ErrListUnknown = errors.New("there is no recent revocation list of the certificate's issuer")
)

// OpenAuthorities reads the files. An error names the file and what is wrong.
func OpenAuthorities(o AuthorityOptions) (*Authorities, error) {
	a := &Authorities{opts: o}
	if _, err := a.Load(); err != nil {
		return nil, err
	}
	return a, nil
}

// Load reads the files again and reports whether they have changed. After an
// error what was read before stays in use.
func (a *Authorities) Load() (changed bool, err error) {
	cas, err := reload.File(a.opts.CAFile, maxFileBytes)
	if err != nil {
		return false, err
	}
	var crls []byte
	if a.opts.CRLFile != "" {
		if crls, err = reload.File(a.opts.CRLFile, maxFileBytes); err != nil {
			return false, err
		}
	}
	t := &trust{sum: sumOf(cas, crls)}
	if before := a.now.Load(); before != nil && before.sum == t.sum {
		return false, nil
	}
	authorities, err := parseAuthorities(cas)
	if err != nil {
		return false, fmt.Errorf("%s %w", a.opts.CAFile, err)
	}
	t.pool, t.anchors = x509.NewCertPool(), make(map[[sha256.Size]byte]bool, len(authorities))
	t.named = make(map[string][]*x509.Certificate, len(authorities))
	for _, ca := range authorities {
		t.pool.AddCert(ca)
		t.anchors[sha256.Sum256(ca.Raw)] = true
		t.named[string(ca.RawSubject)] = append(t.named[string(ca.RawSubject)], ca)
	}
	if a.opts.CRLFile != "" {
		if t.lists, err = parseLists(crls, authorities); err != nil {
			return false, fmt.Errorf("%s %w", a.opts.CRLFile, err)
		}
	}
	a.now.Store(t)
	a.opts.Metrics.listDue.Set(t.lists.due())
	return true, nil
}

// parseAuthorities reads the certificates. Its errors complete the sentence
// "<file> …".
func parseAuthorities(data []byte) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("can't be used: it holds a %q; only certificates of authorities belong there", block.Type)
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("can't be used: certificate %d is damaged: %w", len(found)+1, err)
		}
		if !ca.IsCA {
			return nil, fmt.Errorf("can't be used: certificate %d, of %s, is no authority's (CA:TRUE is missing)", len(found)+1, ca.Subject)
		}
		found = append(found, ca)
	}
	if len(found) == 0 {
		return nil, errors.New("holds no certificate in PEM form")
	}
	return found, nil
}

// maxFileBytes keeps a wrong path from being read into memory; it is room for a
// list of several hundred thousand certificates.
const maxFileBytes = 32 << 20

// A Verified certificate was good when it was looked at.
type Verified struct {
	Until time.Time // when the first of its chain expires

	authorities *Authorities
	chain       []*x509.Certificate // from the leaf to the anchor
}

// maxShown bounds what a peer can make us look at.
const maxShown = 8

// Verify judges the certificates that a peer has shown: its own, then each one's
// issuer, as far as it isn't one of the authorities (RFC 5246 §7.4.2). The error
// is one of those above. It costs a signature check for each certificate of the
// chain and one more.
func (a *Authorities) Verify(shown []*x509.Certificate, now time.Time) (Verified, error) {
	if len(shown) == 0 || len(shown) > maxShown {
		return Verified{}, ErrUntrusted
	}
	t := a.now.Load()
	between, ok := t.path(shown)
	if !ok {
		return Verified{}, ErrUntrusted
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{
		Roots: t.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			return Verified{}, ErrExpired
		}
		return Verified{}, ErrUntrusted
	}
	why := error(nil)
	best := Verified{authorities: a}
	for _, chain := range chains {
		if err := a.checkRevocation(t, chain, now); err != nil {
			if why == nil || errors.Is(err, ErrRevoked) {
				why = err
			}
			continue
		}
		if until := endOf(chain); best.chain == nil || until.After(best.Until) {
			best.Until, best.chain = until, chain
		}
	}
	if best.chain == nil {
		return Verified{}, why
	}
	return best, nil
}

// path is the certificates between the first and an authority that has signed
// the last of them; false if there is no such. It looks from the top, because
// from the bottom the library checks signatures by keys of a stranger's choice,
// in every order in which his certificates could form a chain: 4 of them on
// P-521 took 20 ms and more, for each request. Here a stranger costs a check by
// an authority's key, and that only if he uses its name.
func (t *trust) path(shown []*x509.Certificate) (between *x509.CertPool, ok bool) {
	between = x509.NewCertPool()
	seen := make(map[string]bool)
	for i, c := range shown {
		if i > 0 {
			if seen[string(c.RawSubject)] { // two of a name could be taken in either order
				return nil, false
			}
			seen[string(c.RawSubject)] = true
			between.AddCert(c)
		}
		if slices.ContainsFunc(t.named[string(c.RawIssuer)], func(ca *x509.Certificate) bool { return c.CheckSignatureFrom(ca) == nil }) {
			return between, true
		}
		if i+1 == len(shown) || !bytes.Equal(c.RawIssuer, shown[i+1].RawSubject) {
			return nil, false
		}
	}
	return nil, false
}

func (a *Authorities) checkRevocation(t *trust, chain []*x509.Certificate, now time.Time) error {
	if t.lists.anyOf(chain) {
		return ErrRevoked
	}
	if a.opts.CRLFile != "" && !t.lists.cover(chain, now.Add(-a.opts.Grace)) {
		return ErrListUnknown
	}
	return nil
}

func endOf(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// Stands reports whether the files still let the certificate count: its
// authority is among the trusted ones, and none of its chain is revoked. It
// doesn't ask for the time. Safe for concurrent use.
func (v Verified) Stands() bool {
	t := v.authorities.now.Load()
	return t.anchors[sha256.Sum256(v.chain[len(v.chain)-1].Raw)] && !t.lists.anyOf(v.chain)
}

// Trouble says what is wrong with the revocation lists; empty if nothing.
func (a *Authorities) Trouble(now time.Time) string {
	if a.opts.CRLFile == "" {
		return ""
	}
	t := a.now.Load()
	for _, ca := range t.lists {
		if ca.stale(now) {
			return fmt.Sprintf("the revocation list of %s in %s was due to be replaced at %s: it counts until %s, then devices with its certificates are refused",
				ca.issuer, a.opts.CRLFile, stamp(ca.nextUpdate), stamp(ca.nextUpdate.Add(a.opts.Grace)))
		}
	}
	if len(t.lists) == 0 {
		return a.opts.CRLFile + " holds no list of an authority in " + a.opts.CAFile + ": every device with a certificate is refused"
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
