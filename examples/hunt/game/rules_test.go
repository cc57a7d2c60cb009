package game

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"
)

// TestChallenges: what there is to find is drawn from seed, player and number, has
// one cross, and an answer that names its cell.
func TestChallenges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rules{rapid.Uint64().Draw(t, "seed"), rapid.IntRange(4, 64).Draw(t, "side")}
		player, number := rapid.String().Draw(t, "player"), rapid.IntRange(1, 1e6).Draw(t, "number")
		c, d := r.challenge(player, number), r.drop(player, number)
		if c != r.challenge(player, number) || d != r.drop(player, number) {
			t.Fatal("drawn twice, it differs")
		}
		if len(c.Map) != r.side*r.side || strings.Count(c.Map, string(cross)) != 1 || strings.Trim(c.Map, terrain+string(cross)) != "" {
			t.Fatalf("the map is %q", c.Map)
		}
		// Of maps of 16 cells, two in 50,000 are the same by chance.
		if r.side >= 8 && (c.Map == r.challenge(player, number+1).Map || c.Map == (rules{r.seed + 1, r.side}).challenge(player, number).Map) {
			t.Fatal("another number or seed gives the same map")
		}
		at := strings.IndexByte(c.Map, cross)
		want := string(rune('A'+at%r.side)) + itoa(at/r.side+1)
		if at%r.side >= 26 {
			want = string(rune('A'+at%r.side/26-1)) + string(rune('A'+at%r.side%26)) + itoa(at/r.side+1)
		}
		if got := Answer(c.Map, c.Side); got != want {
			t.Fatalf("the answer is %q, the cell is %q", got, want)
		}
	})
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// TestTreasuresAddUp: else the first one would be found oftener than it says.
func TestTreasuresAddUp(t *testing.T) {
	t.Parallel()
	sum := 0
	for _, t := range treasures() {
		sum += t.often
	}
	if sum != 100 {
		t.Errorf("of 100 finds %d are something", sum)
	}
}

// TestRoom: at ratio 1 everybody may join; below it, as many as the governor's
// maximum, or the ratio of what it is of.
func TestRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		players int
		a       Allowance
		want    float64
	}{
		{0, Allowance{Ratio: 1}, math.Inf(1)},
		{1000, Allowance{Ratio: 1, Maximum: 5}, math.Inf(1)},
		{1000, Allowance{Ratio: 0.9, Maximum: 300}, 300},
		{1000, Allowance{Ratio: 0.25}, 250},
		{0, Allowance{Ratio: 0.9}, 0},
	} {
		if got := (&room{players: c.players}).limit(c.a); got != c.want {
			t.Errorf("with %d players and %+v there is room for %v, not %v", c.players, c.a, got, c.want)
		}
	}
}

// TestTokens: only a token that the game signed for somebody, and that hasn't
// expired, is anybody's.
func TestTokens(t *testing.T) {
	t.Parallel()
	g := &Game{opts: Options{Secret: []byte(secret), TokenLife: time.Hour}}
	now := time.Now()
	good, err := g.token("p-1", now)
	old, err2 := g.token("p-1", now.Add(-2*time.Hour))
	foreign, err3 := (&Game{opts: Options{Secret: []byte(strings.ToUpper(secret)), TokenLife: time.Hour}}).token("p-1", now)
	unsigned, err4 := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.RegisteredClaims{Subject: "p-1", ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour))}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	endless, err5 := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{Subject: "p-1"}).SignedString([]byte(secret))
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		header, cookie, want string
	}{
		"header":          {"Bearer " + good, "", "p-1"},
		"cookie":          {"", good, "p-1"},
		"header wins":     {"Bearer x", good, ""},
		"nothing":         {},
		"expired":         {"Bearer " + old, "", ""},
		"another secret":  {"Bearer " + foreign, "", ""},
		"unsigned":        {"Bearer " + unsigned, "", ""},
		"without an end":  {"Bearer " + endless, "", ""},
		"not a token":     {"Bearer a.b.c", "", ""},
		"another scheme":  {"Basic " + good, "", ""},
		"something added": {"Bearer " + good + "x", "", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/me", nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		if c.cookie != "" {
			r.AddCookie(&http.Cookie{Name: cookieName, Value: c.cookie})
		}
		got, err := g.player(r)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
