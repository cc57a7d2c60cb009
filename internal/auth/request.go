package auth

import (
	"net/http"
	"strings"
)

// tokenOf finds the token of a request: in "Authorization: Bearer", else in
// ?access_token=, else in the cookie. Two in one place are refused: which one
// counts must not depend on who is asked.
func tokenOf(r *http.Request, cookie string) (token string, offered bool, err error) {
	headers := r.Header["Authorization"]
	if len(headers) > 1 {
		return "", false, failed(TokenAmbiguous, "there are several Authorization headers; send one")
	}
	if len(headers) == 1 {
		if scheme, token, _ := strings.Cut(headers[0], " "); strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token), true, nil
		}
	}
	// A name may be escaped.
	if strings.Contains(r.URL.RawQuery, "access_token") || strings.Contains(r.URL.RawQuery, "%") {
		if in := r.URL.Query()["access_token"]; len(in) > 1 {
			return "", false, failed(TokenAmbiguous, "access_token stands several times in the URL; write it once")
		} else if len(in) == 1 {
			return in[0], true, nil
		}
	}
	switch in := r.CookiesNamed(cookie); len(in) {
	case 0:
		return "", false, nil
	case 1:
		return in[0].Value, true, nil
	default:
		return "", false, failed(TokenAmbiguous, "there are several cookies with the token; delete those of other paths and domains")
	}
}
