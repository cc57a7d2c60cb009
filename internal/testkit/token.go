package testkit

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"
)

// HS256 is a device token with further claims, such as `,"groups":["a"]`.
func HS256(secret, device string, life time.Duration, further string) string {
	return jwt(`{"alg":"HS256"}`, device, life, further, func(text []byte) []byte {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(text)
		return mac.Sum(nil)
	})
}

// EdDSA is a device token that names its key.
func EdDSA(key ed25519.PrivateKey, kid, device string, life time.Duration) string {
	return jwt(fmt.Sprintf(`{"alg":"EdDSA","kid":%q}`, kid), device, life, "", func(text []byte) []byte {
		return ed25519.Sign(key, text)
	})
}

// KeySet is a JSON Web Key Set with one key.
func KeySet(key ed25519.PrivateKey, kid string) string {
	public := key[ed25519.PrivateKeySize-ed25519.PublicKeySize:]
	return fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, kid, base64.RawURLEncoding.EncodeToString(public))
}

func jwt(header, device string, life time.Duration, further string, sign func([]byte) []byte) string {
	b64 := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d%s}`, device, time.Now().Add(life).Unix(), further)
	text := b64([]byte(header)) + "." + b64([]byte(claims))
	return text + "." + b64(sign([]byte(text)))
}
