package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	jws "github.com/golang-jwt/jwt/v5"
)

// A Signer makes tokens, for tests and for sites that have no issuer. The gateway
// itself makes none.
type Signer struct {
	method jws.SigningMethod
	key    any
}

// SecretSigner signs by the first secret of a file's content, as the gateway
// reads it (HS256).
func SecretSigner(data []byte) (*Signer, error) {
	keys, err := parseSecrets(data)
	if err != nil {
		return nil, err
	}
	return &Signer{jws.SigningMethodHS256, keys[0].value}, nil
}

// KeySigner signs by a private key in PEM form, with the algorithm that its
// kind has: RS256, ES256, ES384, ES512 or EdDSA. Its errors complete the
// sentence "<file> …", and hold nothing of the key.
func KeySigner(data []byte) (*Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "EC PARAMETERS" { // "openssl ecparam -genkey" writes them in front
			continue
		}
		private, err := privateOf(block)
		if err != nil {
			return nil, err
		}
		public, err := publicKey("", private.Public())
		if err != nil {
			return nil, fmt.Errorf("can't be used: the key %w", err)
		}
		return &Signer{public.methods[0], private}, nil
	}
	return nil, errors.New("holds no PEM block with a private key")
}

func privateOf(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("holds an encrypted key; decrypt it first: openssl pkey -in FILE")
	default:
		return nil, fmt.Errorf("holds a %q; a private key is needed to sign", block.Type)
	}
	if err != nil {
		return nil, errors.New("holds a private key that is damaged")
	}
	switch private := key.(type) {
	case *rsa.PrivateKey:
		return private, nil
	case *ecdsa.PrivateKey:
		return private, nil
	case ed25519.PrivateKey:
		return private, nil
	}
	return nil, errors.New("holds a private key of a kind that no algorithm here uses")
}

// Sign makes a token of claims that JSON can hold. keyID is the kid of its
// header; empty: none.
func (s *Signer) Sign(keyID string, claims map[string]any) (string, error) {
	header := map[string]any{"alg": s.method.Alg(), "typ": "JWT"}
	if keyID != "" {
		header["kid"] = keyID
	}
	text := encodePart(header) + "." + encodePart(claims)
	signature, err := s.method.Sign(text, s.key)
	if err != nil {
		return "", errors.New("the key can't sign")
	}
	return text + "." + base64url.EncodeToString(signature), nil
}

func encodePart(v any) string {
	text, _ := json.Marshal(v) // of texts and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

// Contents are the header and the payload of a JWT as they stand there, for
// people: nothing of them is proven.
func Contents(text string) (header, payload []byte, err error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, nil, err
	}
	return t.header, t.payload, nil
}
