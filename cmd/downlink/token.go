package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"downlink/internal/auth"
	"downlink/internal/jwt"
)

// tokenCmd makes and reads tokens. What is secret goes to standard output, when
// asked for, and nowhere else.
type tokenCmd struct {
	Make    tokenMakeCmd    `cmd:"" help:"Make a signed token (JWT) and print it: for tests, and for sites that have no issuer."`
	Hash    tokenHashCmd    `cmd:"" help:"Make a static token: print it, and the line for device_tokens_file. It is shown this once."`
	Inspect tokenInspectCmd `cmd:"" help:"Say what a token claims and, with the gateway's settings, whether the gateway accepts it and why not."`
	Secret  tokenSecretCmd  `cmd:"" help:"Print a random secret, for jwt_hmac_secret_file."`
}

// maxTokenInput is far above any header that a gateway takes.
const maxTokenInput = 1 << 20

// tokenMakeCmd signs a token.
type tokenMakeCmd struct {
	Device      string        `required:"" placeholder:"ID" help:"Device that the token is for."`
	Groups      []string      `placeholder:"A,B" help:"Groups of the device."`
	Expires     time.Duration `default:"1h" help:"How long the token is valid."`
	SecretFile  string        `name:"hmac-secret-file" placeholder:"FILE" help:"Sign by the first secret in this file (HS256)."`
	KeyFile     string        `name:"key-file" placeholder:"FILE" help:"Sign by the private key in this PEM file; its kind decides the algorithm."`
	KeyID       string        `name:"kid" placeholder:"ID" help:"Name of the key, by which the gateway finds it."`
	Issuer      string        `placeholder:"TEXT" help:"Issuer (iss)."`
	Audience    string        `placeholder:"TEXT" help:"Audience (aud)."`
	DeviceClaim string        `default:"sub" help:"Claim that holds the device ID."`
	GroupsClaim string        `default:"groups" help:"Claim that holds the groups."`
}

// Validate is called by kong.
func (c *tokenMakeCmd) Validate() error {
	switch {
	case (c.SecretFile == "") == (c.KeyFile == ""):
		return errors.New("say what to sign by: --hmac-secret-file FILE or --key-file FILE")
	case c.Expires <= 0:
		return errors.New("--expires must be a time to come, such as 1h")
	case c.DeviceClaim == "" || c.GroupsClaim == "" || c.DeviceClaim == c.GroupsClaim:
		return errors.New("--device-claim and --groups-claim must name two claims")
	}
	return nil
}

// Run prints the token.
func (c *tokenMakeCmd) Run(io console) error {
	signer, err := c.signer()
	if err != nil {
		return usage(err)
	}
	now := time.Now()
	token, err := auth.Claims{
		Device: c.Device, DeviceClaim: c.DeviceClaim, Groups: c.Groups, GroupsClaim: c.GroupsClaim,
		Issuer: c.Issuer, Audience: c.Audience, KeyID: c.KeyID, Issued: now, Expires: now.Add(c.Expires),
	}.Sign(signer)
	if err != nil {
		return usage(err)
	}
	_, err = fmt.Fprintln(io.out, token)
	return err
}

func (c *tokenMakeCmd) signer() (*jwt.Signer, error) {
	path, read := c.SecretFile, jwt.SecretSigner
	if c.KeyFile != "" {
		path, read = c.KeyFile, jwt.KeySigner
	}
	data, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	signer, err := read(data)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return signer, nil
}

// readSmall reads a file that can't be large.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readInput(f, path)
}

func readInput(from io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxTokenInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s can't be read: %w", name, err)
	case len(data) > maxTokenInput:
		return nil, fmt.Errorf("%s has more than %d bytes, which is too much for what it should be", name, maxTokenInput)
	}
	return data, nil
}

// tokenHashCmd makes a static token and its line.
type tokenHashCmd struct {
	Device  string        `required:"" placeholder:"ID" help:"Device that the token is for."`
	Groups  []string      `placeholder:"A,B" help:"Groups of the device."`
	Expires time.Duration `placeholder:"TIME" help:"How long the token is valid. Without: until its line is removed."`
	From    string        `arg:"" optional:"" placeholder:"-" help:"- takes the token from standard input instead, and prints its line alone."`
}

// Validate is called by kong. It doesn't repeat what may be a token.
func (c *tokenHashCmd) Validate() error {
	if c.From != "" && c.From != "-" {
		return errors.New("a token is taken from standard input (-), not from the command line, where other users can see it")
	}
	if c.Expires < 0 {
		return errors.New("--expires must be a time to come, such as 720h")
	}
	return nil
}

// Run prints the token and its line, one below the other.
func (c *tokenHashCmd) Run(io console) error {
	token := newToken()
	if c.From == "-" {
		var err error
		if token, err = readToken(io.in); err != nil {
			return usage(err)
		}
	}
	var expires time.Time
	if c.Expires > 0 {
		expires = time.Now().Add(c.Expires)
	}
	line, err := auth.NewTokenLine(token, c.Device, c.Groups, expires)
	if err != nil {
		return usage(err)
	}
	if c.From == "" {
		line = token + "\n" + line
	}
	_, err = fmt.Fprintln(io.out, line)
	return err
}

// newToken is 256 random bits. Programs that look for secrets in sources know it
// by its beginning; it has no dot, so that nobody takes it for a JWT.
func newToken() string {
	return "dl_" + base64.RawURLEncoding.EncodeToString(randomBytes())
}

func randomBytes() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return b
}

// readToken takes one token from standard input.
func readToken(in io.Reader) (string, error) {
	data, err := readInput(in, "standard input")
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", errors.New("standard input must hold one token and nothing else")
	}
	return token, nil
}

// tokenSecretCmd makes a secret.
type tokenSecretCmd struct{}

// Run prints 64 hexadecimal digits, which are long enough for HS512 too.
func (*tokenSecretCmd) Run(io console) error {
	_, err := fmt.Fprintln(io.out, hex.EncodeToString(randomBytes()))
	return err
}
