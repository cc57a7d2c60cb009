package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
)

// jwk is the part of a JSON Web Key that counts here (RFC 7517 §4, RFC 7518
// §6, RFC 8037 §2).
type jwk struct {
	Kty    string   `json:"kty"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Kid    string   `json:"kid"`
	Crv    string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
}

var (
	errNotKeySet = errors.New("the answer is no JSON Web Key Set")
	errNoKeys    = errors.New("the key set holds no key that can check signatures")
	errJWK       = errors.New("is no public key")
)

// parseKeySet reads a JSON Web Key Set. Keys of unknown kinds and uses are
// passed over, as RFC 7517 §5 asks; so are secret ones (kty oct), which have
// no place at an address that anybody may read.
func parseKeySet(data []byte) (keyring, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(data, &set) != nil || set.Keys == nil {
		return nil, errNotKeySet
	}
	var keys keyring
	for _, raw := range set.Keys {
		var j jwk
		if json.Unmarshal(raw, &j) != nil {
			continue
		}
		if k, err := j.key(); err == nil {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	return keys, nil
}

func (j *jwk) key() (key, error) {
	if j.Use != "" && j.Use != "sig" || j.KeyOps != nil && !slices.Contains(j.KeyOps, "verify") {
		return key{}, errJWK
	}
	public, err := j.public()
	if err != nil {
		return key{}, err
	}
	k, err := publicKey(j.Kid, public)
	if err != nil {
		return key{}, err
	}
	if j.Alg != "" { // the key is for one algorithm alone
		m := k.method(j.Alg)
		if m == nil {
			return key{}, errJWK
		}
		k.methods = k.methods[:0:0]
		k.methods = append(k.methods, m)
	}
	return k, nil
}

func (j *jwk) public() (crypto.PublicKey, error) {
	switch j.Kty {
	case "RSA":
		n, err1 := base64url.DecodeString(j.N)
		e, err2 := base64url.DecodeString(j.E)
		exponent := new(big.Int).SetBytes(e)
		if err1 != nil || err2 != nil || len(n) > maxRSABytes || exponent.BitLen() > 31 || exponent.Bit(0) == 0 || exponent.BitLen() < 2 {
			return nil, errJWK
		}
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}, nil
	case "EC":
		return j.curvePoint()
	case "OKP":
		x, err := base64url.DecodeString(j.X)
		if err != nil || j.Crv != "Ed25519" || len(x) != ed25519.PublicKeySize {
			return nil, errJWK
		}
		return ed25519.PublicKey(x), nil
	default:
		return nil, errJWK
	}
}

// maxRSABytes: checking a signature of a longer key takes milliseconds.
const maxRSABytes = 8192 / 8

func (j *jwk) curvePoint() (crypto.PublicKey, error) {
	var curve elliptic.Curve
	switch j.Crv {
	case "P-256":
		curve = elliptic.P256()
	case "P-384":
		curve = elliptic.P384()
	case "P-521":
		curve = elliptic.P521()
	default:
		return nil, errJWK
	}
	size := (curve.Params().BitSize + 7) / 8
	x, err1 := base64url.DecodeString(j.X)
	y, err2 := base64url.DecodeString(j.Y)
	if err1 != nil || err2 != nil || len(x) != size || len(y) != size {
		return nil, errJWK
	}
	return ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y)) // refuses a point beside the curve
}
