package game

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// cookieName is where the gateways look for a page's token (jwt_cookie).
const cookieName = "downlink_token"

var errToken = errors.New("no token, or one that doesn't count: join first")

// newPlayer is an ID that nobody guesses.
func newPlayer() string { return "p-" + strings.ToLower(rand.Text()) }

// token makes a player the device of that name, for the game and the gateways alike.
func (g *Game) token(player string, now time.Time) (string, error) {
	claims := jwt.RegisteredClaims{Subject: player, ExpiresAt: jwt.NewNumericDate(now.Add(g.opts.TokenLife))}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(g.opts.Secret)
}

// player is whose request it is.
func (g *Game) player(r *http.Request) (string, error) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		cookie, err := r.Cookie(cookieName)
		if err != nil {
			return "", errToken
		}
		text = cookie.Value
	}
	var claims jwt.RegisteredClaims
	secret := func(*jwt.Token) (any, error) { return g.opts.Secret, nil }
	_, err := jwt.ParseWithClaims(text, &claims, secret, jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err != nil || claims.Subject == "" {
		return "", errToken
	}
	return claims.Subject, nil
}

// setCookie lets the page's EventSource, which can't set a header, be the player.
// Cookies know no ports, so it reaches a gateway of the same host too.
func (g *Game) setCookie(w http.ResponseWriter, token string) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: token, Path: "/", MaxAge: int(g.opts.TokenLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: g.opts.SecureCookie,
	})
}
