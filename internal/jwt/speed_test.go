package jwt

import (
	"testing"
	"time"

	jws "github.com/golang-jwt/jwt/v5"
)

func BenchmarkCheck(b *testing.B) {
	k := makeKeys(b)
	file := append(pemOf(b, &k.rsa.PublicKey, ""), pemOf(b, &k.p256.PublicKey, "")...)
	file = append(file, pemOf(b, k.ed.Public(), "")...)
	v := verifier(b, func(o *Options) { o.PublicKeysFile = write(b, file) })
	for _, c := range []struct {
		m   jws.SigningMethod
		key any
	}{{jws.SigningMethodHS256, secret}, {jws.SigningMethodRS256, k.rsa}, {jws.SigningMethodES256, k.p256}, {jws.SigningMethodEdDSA, k.ed}} {
		token := sign(b, `{"alg":"`+c.m.Alg()+`","typ":"JWT"}`, payload(b, map[string]any{"iss": "https://id.example.com/realms/shops", "aud": "downlink", "iat": time.Now().Unix(), "groups": []string{"store-0001", "tills"}}), c.m, c.key)
		b.Run(c.m.Alg(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := v.Check(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
