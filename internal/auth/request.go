package auth

import (
	"net/http"
	"strings"
)

// tokenOf finds the token of a request: in "Authorization: Bearer", else in
// ?access_token=, else in the cookie. Two in one place are refused: which one
// counts must not depend on who is asked.
func tokenOf(r *http.Request, cookie string) (string, error) {
	headers := r.Header["Authorization"]
	if len(headers) > 1 {
		return "", &Error{TokenAmbiguous, "there are several Authorization headers; send one"}
	}
	if len(headers) == 1 {
		if scheme, token, _ := strings.Cut(headers[0], " "); strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token), nil
		}
	}
	if r.URL.RawQuery != "" && strings.Contains(r.URL.RawQuery, "access_token") {
		if in := r.URL.Query()["access_token"]; len(in) > 1 {
			return "", &Error{TokenAmbiguous, "access_token stands several times in the URL; write it once"}
		} else if len(in) == 1 {
			return in[0], nil
		}
	}
	switch in := r.CookiesNamed(cookie); len(in) {
	case 0:
		return "", &Error{TokenMissing, "a token is needed: send it as Authorization: Bearer, or where that is impossible as ?access_token= or as a cookie"}
	case 1:
		return in[0].Value, nil
	default:
		return "", &Error{TokenAmbiguous, "there are several cookies with the token; delete those of other paths and domains"}
	}
}
