package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"downlink/internal/auth"
	"downlink/internal/config"
	"downlink/internal/jwt"
)

// tokenInspectCmd reads a token as a gateway with these settings would.
type tokenInspectCmd struct {
	Token string `arg:"" optional:"" placeholder:"TOKEN" help:"The token. Better: -, which is meant by nothing too, takes it from standard input; other users can see a command line."`

	config.Config `embed:""`
}

// Run prints what the token says, then the verdict. A token that isn't accepted
// ends it with exit code 3.
func (c *tokenInspectCmd) Run(loader *config.Loader, io console) error {
	text := c.Token
	if text == "" || text == "-" {
		var err error
		if text, err = readToken(io.in); err != nil {
			return usage(err)
		}
	}
	methods, err := c.methods(loader)
	if err != nil {
		return usage(err)
	}
	if err := show(io, text); err != nil {
		return err
	}
	if methods == nil {
		_, err := fmt.Fprintln(io.out, "verdict  not judged: give the gateway's settings, for example --config FILE, or --auth jwt --jwt-hmac-secret-file FILE")
		return err
	}
	id, err := judge(methods, text)
	if failed, ok := errors.AsType[*auth.Error](err); ok {
		return refused(fmt.Errorf("not accepted (%s): %w", failed.Failure, err))
	}
	if err != nil {
		return err
	}
	until := "for ever"
	if !id.Expires.IsZero() {
		until = "until " + id.Expires.UTC().Format(time.RFC3339)
	}
	groups := "none"
	if len(id.Groups) > 0 {
		groups = visible(strings.Join(id.Groups, ", "))
	}
	_, err = fmt.Fprintf(io.out, "verdict  accepted %s\ndevice   %s\ngroups   %s\n", until, visible(id.Device), groups)
	return err
}

// methods are the gateway's ways to judge a token; nil if no settings name one.
func (c *tokenInspectCmd) methods(loader *config.Loader) (*auth.Methods, error) {
	if !c.Uses("jwt") && !c.Uses("tokens") {
		return nil, nil
	}
	if err := loader.Check(&c.Config); err != nil {
		return nil, err
	}
	o := identity(&c.Config)
	m := &auth.Methods{Metrics: auth.NewMetrics(nil)}
	var err error
	if o.JWT != nil {
		o.JWT.Keys.Metrics, o.JWT.Keys.Logger = jwt.NewMetrics(nil), slog.New(slog.DiscardHandler)
		if m.JWT, err = auth.OpenJWTs(*o.JWT); err != nil {
			return nil, err
		}
	}
	if o.TokensFile != "" {
		if m.Tokens, err = auth.OpenTokens(o.TokensFile); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// judge checks the token; for that it fetches key sets.
func judge(m *auth.Methods, text string) (auth.Identity, error) {
	if m.JWT == nil {
		return m.CheckToken(context.Background(), text)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var fetching sync.WaitGroup
	fetching.Go(func() { _ = m.JWT.Run(ctx) }) // ends with ctx, without an error
	defer fetching.Wait()
	defer cancel()
	return m.CheckToken(ctx, text)
}

// show prints what stands in a token: of a JWT its parts, of any other its
// digest.
func show(io console, text string) error {
	header, payload, err := jwt.Contents(text)
	if err != nil {
		_, err := fmt.Fprintf(io.out, "form     no JWT (%s)\nsha256   %x\n", strings.TrimPrefix(err.Error(), "the token isn't a signed JWT: "), sha256.Sum256([]byte(text)))
		return err
	}
	_, err = fmt.Fprintf(io.out, "header   %s\nclaims   %s\n", pretty(header), pretty(payload))
	if err == nil {
		err = showTimes(io, payload)
	}
	return err
}

func pretty(text []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "         ", "  ") != nil {
		return visible(string(text))
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// showTimes prints the claims that are times as people read them.
func showTimes(io console, payload []byte) error {
	var claims map[string]any
	if json.Unmarshal(payload, &claims) != nil {
		return nil
	}
	for _, name := range []string{"iat", "nbf", "exp"} {
		seconds, ok := claims[name].(float64)
		if !ok || seconds < 0 || seconds > 253402300799 { // the year 9999
			continue
		}
		at := time.Unix(int64(seconds), 0)
		distance := time.Until(at).Round(time.Second)
		when := "in " + distance.String()
		if distance < 0 {
			when = (-distance).String() + " ago"
		}
		if _, err := fmt.Fprintf(io.out, "%-8s %s (%s)\n", name, at.UTC().Format(time.RFC3339), when); err != nil {
			return err
		}
	}
	return nil
}
