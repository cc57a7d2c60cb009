package jwt

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	jws "github.com/golang-jwt/jwt/v5"

	"downlink/internal/reload"
)

// A key checks signatures, by the methods that its type and size allow. The
// token chooses among those and never beyond: so a public key can't be used as
// an HMAC secret, and "none" is nobody's method.
type key struct {
	id      string // kid; empty: any token may be its own
	methods []jws.SigningMethod
	value   any // as the methods want it
}

func (k key) method(alg string) jws.SigningMethod {
	for _, m := range k.methods {
		if m.Alg() == alg {
			return m
		}
	}
	return nil
}

// verify reports whether the key has signed the token.
func (k key) verify(t *Token) bool {
	m := k.method(t.alg)
	return m != nil && m.Verify(t.signed, t.signature, k.value) == nil
}

// A keyring is keys in the order of their source.
type keyring []key

// find is the keys that may have signed a token.
func (r keyring) find(alg, kid string) keyring {
	var found keyring
	for _, k := range r {
		if k.method(alg) != nil && (kid == "" || k.id == "" || k.id == kid) {
			found = append(found, k)
		}
	}
	return found
}

// whyNone says what is wrong with a token for which find has nothing.
func (r keyring) whyNone(t *Token) *Error {
	if slices.ContainsFunc(r, func(k key) bool { return k.method(t.alg) != nil && k.id != t.kid }) {
		return failed(KeyUnknown, "the token was signed with a key (kid) that this gateway does not know")
	}
	return failed(BadAlgorithm, "the token is signed by an algorithm (alg) for which this gateway has no key")
}

// minSecretBytes is what HS256 needs; HS384 needs 48 and HS512 64 (RFC 7518 §3.2).
const minSecretBytes = 32

func secretKey(secret []byte) (key, error) {
	if len(secret) < minSecretBytes {
		return key{}, fmt.Errorf("has %d bytes; at least %d are needed for HS256, 48 for HS384, 64 for HS512", len(secret), minSecretBytes)
	}
	k := key{value: secret, methods: []jws.SigningMethod{jws.SigningMethodHS256}}
	if len(secret) >= 48 {
		k.methods = append(k.methods, jws.SigningMethodHS384)
	}
	if len(secret) >= 64 {
		k.methods = append(k.methods, jws.SigningMethodHS512)
	}
	return k, nil
}

// minRSABits: shorter keys have been forbidden since 2013 (RFC 7518 §3.3).
const minRSABits = 2048

// publicKey makes a key of a public one.
func publicKey(id string, public crypto.PublicKey) (key, error) {
	k := key{id: id, value: public}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < minRSABits {
			return key{}, fmt.Errorf("is an RSA key of %d bits; at least %d are needed", p.N.BitLen(), minRSABits)
		}
		k.methods = []jws.SigningMethod{
			jws.SigningMethodRS256, jws.SigningMethodRS384, jws.SigningMethodRS512,
			jws.SigningMethodPS256, jws.SigningMethodPS384, jws.SigningMethodPS512,
		}
	case *ecdsa.PublicKey:
		switch p.Curve.Params().Name { // each algorithm has its curve (RFC 7518 §3.4)
		case "P-256":
			k.methods = []jws.SigningMethod{jws.SigningMethodES256}
		case "P-384":
			k.methods = []jws.SigningMethod{jws.SigningMethodES384}
		case "P-521":
			k.methods = []jws.SigningMethod{jws.SigningMethodES512}
		}
	case ed25519.PublicKey:
		k.methods = []jws.SigningMethod{jws.SigningMethodEdDSA}
	}
	if k.methods == nil {
		return key{}, errors.New("is of a kind that no algorithm here uses; allowed are RSA, EC on P-256, P-384 or P-521, and Ed25519")
	}
	return k, nil
}

// parseSecrets reads one secret a line. Its errors complete the sentence "<file> …".
func parseSecrets(data []byte) (keyring, error) {
	var keys keyring
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			continue
		}
		k, err := secretKey(line)
		if err != nil {
			return nil, fmt.Errorf("can't be used: the secret in line %d %w", number, err)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("holds no secret; write one of at least %d bytes, for example by: openssl rand -hex 32", minSecretBytes)
	}
	return keys, tooMany(keys)
}

// parsePublicKeys reads PEM blocks with public keys and certificates. A block's
// header "kid" is the key's ID.
func parsePublicKeys(data []byte) (keyring, error) {
	var keys keyring
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		k, err := blockKey(block)
		if err != nil {
			return nil, fmt.Errorf("can't be used: block %d %w", len(keys)+1, err)
		}
		keys = append(keys, k)
	}
	if begun := bytes.Count(data, []byte("-----BEGIN ")); begun != len(keys) {
		return nil, errors.New("can't be used: one of its PEM blocks is damaged")
	}
	if len(keys) == 0 {
		return nil, errors.New("holds no PEM block with a public key")
	}
	return keys, tooMany(keys)
}

func tooMany(keys keyring) error {
	if len(keys) > maxTried {
		return fmt.Errorf("holds %d keys; at most %d are allowed", len(keys), maxTried)
	}
	return nil
}

func blockKey(block *pem.Block) (key, error) {
	public, err := publicOf(block)
	if err != nil {
		return key{}, err
	}
	return publicKey(block.Headers["kid"], public)
}

var errBlock = errors.New("can't be read: its type says one thing and its content another")

func publicOf(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		if public, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			return public, nil
		}
		return nil, errBlock
	case "RSA PUBLIC KEY":
		if public, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
			return public, nil
		}
		return nil, errBlock
	case "CERTIFICATE":
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return cert.PublicKey, nil
		}
		return nil, errBlock
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("is a private key, which the gateway doesn't need and should not have; write its public key here: openssl pkey -pubout")
	default:
		return nil, fmt.Errorf("is a %q; allowed are PUBLIC KEY, RSA PUBLIC KEY and CERTIFICATE", block.Type)
	}
}

// maxFileBytes keeps a wrong path from being read into memory.
const maxFileBytes = 1 << 20

// readFile is empty without a path.
func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	return reload.File(path, maxFileBytes)
}
