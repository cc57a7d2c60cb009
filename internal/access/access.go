// Package access owns who calls the back end's port, and what he may: the
// publishers' tokens and their scopes. It neither stores events nor makes
// tickets; who does, asks it first. Its invariant: where it is on, nobody does
// what the token that he shows has no scope for, and no part of a token gets
// into an error, a log line or a metric.
package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"downlink/internal/jwt"
	"downlink/internal/problem"
)

// A Verifier checks JWTs. Safe for concurrent use.
type Verifier interface {
	// Check is the payload of a token, a JSON object, and when the token ceases to
	// count. The error is a *jwt.Error, or wraps jwt.ErrKeysUnavailable.
	Check(ctx context.Context, token string) (payload []byte, expires time.Time, err error)
}

// Options for a Gate. Without a file and a verifier it is open: everybody may
// do everything.
type Options struct {
	File    string   // of static tokens; empty: there are none
	JWT     Verifier // nil: there are no JWTs
	Metrics *Metrics
	Logger  *slog.Logger
}

// A Gate knows who may call. Safe for concurrent use.
type Gate struct {
	opts     Options
	static   atomic.Pointer[publishers] // nil without a file
	verdicts verdicts
	denials  denials
}

// New reads the file. An error names it and what is wrong, and nothing of what
// stands there.
func New(o Options) (*Gate, error) {
	g := &Gate{opts: o, denials: denials{metrics: o.Metrics, log: o.Logger}}
	if _, err := g.Load(); err != nil {
		return nil, err
	}
	return g, nil
}

// Load reads the file again and reports whether it has changed. After an error
// what was read before stays in use.
func (g *Gate) Load() (changed bool, err error) {
	if g.opts.File == "" {
		return false, nil
	}
	now, err := readPublishers(g.opts.File, g.static.Load(), &g.denials)
	if err != nil || now == nil {
		return false, err
	}
	g.static.Store(now)
	return true, nil
}

// Open reports whether everybody may do everything.
func (g *Gate) Open() bool { return g.opts.File == "" && g.opts.JWT == nil }

// Check says who calls. The error is a *problem.Document, and the answer.
func (g *Gate) Check(r *http.Request) (*Caller, error) {
	if g.Open() {
		return everybody, nil
	}
	token, err := g.token(r)
	if err != nil {
		return nil, err
	}
	// Which kind of token it is follows from its form alone, so that one kind
	// is never tried after the other.
	static := g.static.Load()
	if g.opts.JWT != nil && (static == nil || strings.Count(token, ".") == 2) {
		return g.checkJWT(r, token)
	}
	// What the time of the search may tell is something of the digest, which the
	// caller knows, and from no digest a way leads to another token.
	c := static.callers[sha256.Sum256([]byte(token))]
	if c == nil {
		return nil, g.deny(r, unknown, problem.Unauthorized, "the token is not, or no longer, among those of publishers_file")
	}
	return c, nil
}

// Admin is h for those who may do everything: others get their answer here.
func (g *Gate) Admin(h http.Handler) http.Handler { return g.only(h, (*Caller).PermitAdmin) }

// Governor is h for those who may ask the governor.
func (g *Gate) Governor(h http.Handler) http.Handler { return g.only(h, (*Caller).PermitGovernor) }

func (g *Gate) only(h http.Handler, permit func(*Caller) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := g.Check(r)
		if err == nil {
			err = permit(c)
		}
		if err != nil {
			Answer(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Answer answers a request with what Check or a Caller said.
func Answer(w http.ResponseWriter, err error) {
	d, ok := errors.AsType[*problem.Document](err)
	if !ok {
		d = problem.New(problem.Internal, "the right to call could not be checked")
	}
	problem.Write(w, d)
}

// token finds the token of a request. Elsewhere than in the header it would
// stand in other people's logs.
func (g *Gate) token(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	switch len(values) {
	case 0:
		return "", g.deny(r, missing, problem.Unauthorized, "the request has no Authorization header")
	case 1:
	default:
		return "", g.deny(r, missing, problem.Unauthorized, "there are several Authorization headers; send one")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", g.deny(r, missing, problem.Unauthorized, "the Authorization header isn't of the form: Bearer TOKEN")
	}
	return strings.TrimSpace(token), nil
}

// checkJWT says who calls by the word of an issuer.
func (g *Gate) checkJWT(r *http.Request, token string) (*Caller, error) {
	sum, now := sha256.Sum256([]byte(token)), time.Now()
	if c := g.verdicts.find(sum, now); c != nil {
		return c, nil
	}
	payload, expires, err := g.opts.JWT.Check(r.Context(), token)
	if errors.Is(err, jwt.ErrKeysUnavailable) {
		return nil, g.deny(r, keysUnavailable, problem.KeysUnavailable, "the keys for publishers' tokens could not be fetched")
	}
	if bad, ok := errors.AsType[*jwt.Error](err); ok {
		return nil, g.denials.deny(told{why: rejected, what: string(bad.Failure)}, r.RemoteAddr, problem.New(problem.Unauthorized, bad.Error()))
	}
	if err != nil {
		return nil, problem.New(problem.Internal, "the token could not be checked")
	}
	c, why := readClaims(payload)
	switch why {
	case "":
	case noScopes:
		return nil, g.deny(r, scopeMissing, problem.Forbidden, why)
	default:
		return nil, g.deny(r, rejected, problem.Unauthorized, why)
	}
	c.denials = &g.denials
	g.verdicts.keep(sum, verdict{c, minTime(expires, now.Add(verdictFor))}, now)
	return c, nil
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (g *Gate) deny(r *http.Request, why denial, code problem.Code, detail string) *problem.Document {
	return g.denials.deny(told{why: why}, r.RemoteAddr, problem.New(code, detail))
}
