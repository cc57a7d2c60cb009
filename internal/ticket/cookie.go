package ticket

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"
)

// cookieName tells the devices of one browser apart, and not what they are.
func cookieName(device string) string {
	sum := sha256.Sum256([]byte(device))
	return "downlink_session_" + base64.RawURLEncoding.EncodeToString(sum[:9])
}

// session is what the request's cookie for a device says; nil without one that
// counts.
func (f *Office) session(r *http.Request, device string, now time.Time) *grant {
	for _, c := range r.CookiesNamed(cookieName(device)) {
		var s grant
		if f.secrets.open(sessionKind, c.Value, &s) && s.Device == device && now.Before(s.until()) {
			return &s
		}
	}
	return nil
}

// cookie is the Set-Cookie for a session. For a page of another site it must be
// SameSite=None, which browsers take only over TLS; partitioned, it stays within
// that site, and passes where other sites' cookies are blocked.
func (f *Office) cookie(r *http.Request, s grant) string {
	c := &http.Cookie{
		Name: cookieName(s.Device), Value: f.secrets.seal(sessionKind, s),
		Path: "/", MaxAge: max(1, int(time.Until(s.until())/time.Second)),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: f.opts.Secure(r),
	}
	if c.Secure && f.opts.Abroad(r) {
		c.SameSite, c.Partitioned = http.SameSiteNoneMode, true
	}
	return c.String()
}
