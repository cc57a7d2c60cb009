package usage

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoSaysNothingMoreIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Book
		if sum, known := b.Sum(); known || sum != 0 {
			t.Errorf("nobody said %v", sum)
		}
		for _, w := range []Word{{"a", 10, 30 * time.Second}, {"b", 5, time.Minute}, {"a", 20, 30 * time.Second}} {
			if err := b.Say(w); err != nil {
				t.Fatal(err)
			}
		}
		if sum, known := b.Sum(); !known || sum != 25 {
			t.Errorf("%v", sum)
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // in a bubble
		if sum, known := b.Sum(); !known || sum != 5 {
			t.Errorf("%v", sum)
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // in a bubble
		if _, known := b.Sum(); known {
			t.Error("both are gone, and it knows all the same")
		}
	})
}

func TestWordsThatCannotBe(t *testing.T) {
	var b Book
	for _, w := range []Word{
		{"", 1, time.Minute}, {strings.Repeat("x", maxNameBytes+1), 1, time.Minute}, {"a", -1, time.Minute}, {"a", math.NaN(), time.Minute}, {"a", 1.7e308, time.Minute}, {"a", 1e9 + 1, time.Minute},
		{"a", math.Inf(1), time.Minute}, {"a", 1, 0}, {"a", 1, 2 * time.Hour}, {"a", 1, Seconds(math.NaN())}, {"a", 1, Seconds(math.Inf(1))}, {"a", 1, Seconds(-1)},
	} {
		if b.Say(w) == nil {
			t.Errorf("%+v counts", w)
		}
	}
	if _, known := b.Sum(); known {
		t.Error("something counts")
	}
}

// Names that nobody uses twice don't take memory without end.
func TestAFullBookForgetsThoseWhoAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Book
		for i := range maxCallers {
			if err := b.Say(Word{strconv.Itoa(i), 1, time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Say(Word{"one more", 1, time.Second}); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		if err := b.Say(Word{"7", 2, time.Second}); err != nil {
			t.Errorf("who is known: %v", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		if err := b.Say(Word{"one more", 1, time.Second}); err != nil || len(b.words) != 1 {
			t.Errorf("%v, with %d", err, len(b.words))
		}
	})
}

func TestHandler(t *testing.T) {
	var b Book
	h := Handler(&b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the state") }))
	send := func(body, media, site string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const good = `{"caller":"a","use":3,"for_seconds":30}`
	for _, c := range []struct {
		body, media, site string
		status            int
	}{
		{`{"caller":"a"}`, "application/json", "", http.StatusBadRequest},
		{`{"caller":"a","use":3,"for_seconds":30,"more":1}`, "application/json", "", http.StatusBadRequest},
		{`{"caller":"a","use":3,"use":4,"for_seconds":30}`, "application/json", "", http.StatusBadRequest},
		{`{"caller":"a","use":-3,"for_seconds":30}`, "application/json", "", http.StatusBadRequest},
		{`{"caller":"a","use":1e999,"for_seconds":30}`, "application/json", "", http.StatusBadRequest},
		{`{"caller":"a","use":3,"for_seconds":0}`, "application/json", "", http.StatusBadRequest},
		{"", "application/json", "", http.StatusBadRequest},
		{good, "text/plain", "", http.StatusUnsupportedMediaType},
		{good, "application/json", "cross-site", http.StatusForbidden},
		{good + strings.Repeat(" ", maxBody), "application/json", "", http.StatusRequestEntityTooLarge},
	} {
		if w := send(c.body, c.media, c.site); w.Code != c.status || strings.Contains(w.Body.String(), "the state") {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
		if _, known := b.Sum(); known {
			t.Fatalf("%s counts", c.body)
		}
	}
	w := send(good, "application/json", "")
	if sum, _ := b.Sum(); w.Code != http.StatusOK || w.Body.String() != "the state" || sum != 3 {
		t.Errorf("%d %s, %v", w.Code, w.Body, sum)
	}
	for i := range maxCallers {
		_ = b.Say(Word{"x" + strconv.Itoa(i), 0, time.Minute})
	}
	if w := send(strings.Replace(good, `"a"`, `"b"`, 1), "application/json", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
