package auth

import (
	"slices"
	"testing"
	"time"

	"downlink/internal/jwt"
)

// TestSigned: what is signed here is accepted here.
func TestSigned(t *testing.T) {
	by, err := jwt.SecretSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, func(o *JWTOptions) {
		o.DeviceClaim, o.Keys.Issuers, o.Keys.Audiences = "device", []string{"me"}, []string{"downlink"}
	})
	claims := Claims{
		Device: "매장-12", DeviceClaim: "device", Groups: []string{"b", "a"}, GroupsClaim: "groups",
		Issuer: "me", Audience: "downlink", KeyID: "one", Issued: time.Now(), Expires: time.Now().Add(time.Hour),
	}
	token, err := claims.Sign(by)
	if err != nil {
		t.Fatal(err)
	}
	id, err := v.check(t.Context(), token)
	if err != nil || id.Device != claims.Device || !slices.Equal(id.Groups, []string{"a", "b"}) || id.Expires.Unix() != claims.Expires.Add(10*time.Second).Unix() {
		t.Errorf("%+v, %v", id, err)
	}
	for _, bad := range []Claims{{}, {Device: "*"}, {Device: "a", Groups: []string{""}}, {Device: "a", Groups: []string{"@north"}}} {
		if token, err := bad.Sign(by); err == nil {
			t.Errorf("%+v is signed: %s", bad, token)
		}
	}
}
