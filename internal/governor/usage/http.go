package usage

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"downlink/internal/problem"
	"downlink/internal/strictjson"
)

// Path is where the handler belongs.
const Path = "/v1/governor/use"

// maxBody of a request, in bytes.
const maxBody = 4 << 10

const advice = `Send Content-Type: application/json and an object such as {"caller": "game-7f3a", "use": 1200, "for_seconds": 30}.`

// Handler serves POST Path: it notes what a program uses, and then answers as a
// GET of the governor does, so that a program has both with one request.
func Handler(b *Book, answer http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cross.Check(r) != nil {
			problem.Write(w, problem.New(problem.CrossOrigin, "a page of another origin sent it"))
			return
		}
		word, fault := read(w, r)
		if fault == nil {
			fault = note(b, word)
		}
		if fault != nil {
			problem.Write(w, fault)
			return
		}
		answer.ServeHTTP(w, r)
	})
}

func note(b *Book, word Word) *problem.Document {
	switch err := b.Say(word); {
	case errors.Is(err, ErrFull):
		return problem.New(problem.TooManyCallers, err.Error())
	case err != nil:
		return problem.New(problem.InvalidUse, err.Error())
	}
	return nil
}

func read(w http.ResponseWriter, r *http.Request) (Word, *problem.Document) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return Word{}, problem.New(problem.UnsupportedMedia, "what is used is said with Content-Type: application/json").Advise(advice)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return Word{}, problem.New(problem.BodyTooLarge, fmt.Sprintf("it has more than %d bytes", large.Limit)).Advise(advice)
	}
	if err != nil {
		return Word{}, problem.New(problem.RequestTimeout, "the body broke off")
	}
	var word Word
	var use, seconds *float64
	if err := strictjson.Read(body, map[string]any{"caller": &word.Caller, "use": &use, "for_seconds": &seconds}); err != nil {
		return Word{}, problem.New(problem.InvalidUse, err.Error())
	}
	if use == nil || seconds == nil {
		return Word{}, problem.New(problem.InvalidUse, "use or for_seconds is missing")
	}
	word.Use, word.For = *use, Seconds(*seconds)
	return word, nil
}
