package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// revocations are what authorities have revoked, by the authority's name as it
// stands in certificates (DER).
type revocations map[string]*revocationList

// A revocationList is all that the lists of one authority say.
type revocationList struct {
	issuer     string          // for people
	nextUpdate time.Time       // of the list that is due last; zero: it never is
	serials    map[string]bool // of revoked certificates
}

// parseLists reads revocation lists (RFC 5280 §5), PEM blocks X509 CRL or one
// in DER. A list of an authority that isn't among the given ones is passed over:
// it has nothing to say about anybody who is trusted. Its errors complete the
// sentence "<file> …".
func parseLists(data []byte, authorities []*x509.Certificate) (revocations, error) {
	ders, err := listsIn(data)
	if err != nil {
		return nil, err
	}
	found := make(revocations)
	for i, der := range ders {
		list, err := x509.ParseRevocationList(der)
		if err != nil && strings.Contains(err.Error(), "unsupported crl version") { // there is no type for it
			return nil, fmt.Errorf("can't be used: list %d is of version 1; make one of version 2 (RFC 5280), with openssl by the setting crlnumber", i+1)
		}
		if err != nil {
			return nil, fmt.Errorf("can't be used: list %d is damaged: %w", i+1, err)
		}
		known, signed := vouched(list, authorities)
		if !known {
			continue
		}
		if !signed {
			return nil, fmt.Errorf("can't be used: list %d is not signed by the authority that it names, %s", i+1, list.Issuer)
		}
		if err := found.add(list); err != nil {
			return nil, fmt.Errorf("can't be used: list %d, of %s, %w", i+1, list.Issuer, err)
		}
	}
	return found, nil
}

func listsIn(data []byte) ([][]byte, error) {
	if !bytes.Contains(data, []byte("-----BEGIN ")) {
		return [][]byte{data}, nil
	}
	var ders [][]byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("can't be used: it holds a %q; only revocation lists (X509 CRL) belong there", block.Type)
		}
		ders = append(ders, block.Bytes)
	}
	// One that is being written is cut off for a moment.
	if len(ders) != bytes.Count(data, []byte("-----BEGIN ")) {
		return nil, errors.New("can't be used: one of its PEM blocks is damaged")
	}
	return ders, nil
}

// vouched reports whether the list names a trusted authority, and whether one
// of that name has signed it.
func vouched(list *x509.RevocationList, authorities []*x509.Certificate) (known, signed bool) {
	for _, ca := range authorities {
		if bytes.Equal(ca.RawSubject, list.RawIssuer) {
			known = true
			signed = signed || list.CheckSignatureFrom(ca) == nil
		}
	}
	return known, signed
}

// errExtension: what a list's critical extension restricts or changes must be
// understood to use the list (RFC 5280 §5.2), and none is supported.
var errExtension = errors.New("has a critical extension, so that it may be part of a list only; write whole lists, of one authority each")

func (r revocations) add(list *x509.RevocationList) error {
	for _, e := range list.Extensions {
		if e.Critical {
			return errExtension
		}
	}
	mine := r[string(list.RawIssuer)]
	if mine == nil {
		mine = &revocationList{issuer: list.Issuer.String(), nextUpdate: list.NextUpdate, serials: make(map[string]bool, len(list.RevokedCertificateEntries))}
		r[string(list.RawIssuer)] = mine
	}
	// Of several lists, an old one beside the new for instance, all entries count.
	if list.NextUpdate.IsZero() || !mine.nextUpdate.IsZero() && list.NextUpdate.After(mine.nextUpdate) {
		mine.nextUpdate = list.NextUpdate
	}
	for _, entry := range list.RevokedCertificateEntries {
		for _, e := range entry.Extensions {
			if e.Critical {
				return errExtension
			}
		}
		if entry.ReasonCode != removedFromList {
			mine.serials[string(entry.SerialNumber.Bytes())] = true
		}
	}
	return nil
}

// removedFromList is the reason removeFromCRL (RFC 5280 §5.3.1).
const removedFromList = 8

// anyOf reports whether one of the certificates is revoked.
func (r revocations) anyOf(chain []*x509.Certificate) bool {
	for _, c := range chain {
		if list := r[string(c.RawIssuer)]; list != nil && list.serials[string(c.SerialNumber.Bytes())] {
			return true
		}
	}
	return false
}

// cover reports whether the lists say enough about a chain at a time: there
// must be one of the leaf's issuer, and none of an issuer in the chain may be
// stale.
func (r revocations) cover(chain []*x509.Certificate, at time.Time) bool {
	if r[string(chain[0].RawIssuer)] == nil {
		return false
	}
	for _, c := range chain {
		if list := r[string(c.RawIssuer)]; list != nil && list.stale(at) {
			return false
		}
	}
	return true
}

func (l *revocationList) stale(at time.Time) bool {
	return !l.nextUpdate.IsZero() && at.After(l.nextUpdate)
}

// due is when the first list is due to be replaced, in seconds since 1970; 0:
// never.
func (r revocations) due() float64 {
	var first time.Time
	for _, list := range r {
		if !list.nextUpdate.IsZero() && (first.IsZero() || list.nextUpdate.Before(first)) {
			first = list.nextUpdate
		}
	}
	if first.IsZero() {
		return 0
	}
	return float64(first.Unix())
}
