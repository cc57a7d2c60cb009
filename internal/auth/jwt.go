package auth

import (
	"context"
	"errors"
	"time"

	"downlink/internal/event"
	"downlink/internal/jwt"
)

// JWTOptions say how JWTs are checked, and how they name a device.
type JWTOptions struct {
	Keys        jwt.Options // its Claims are those below
	DeviceClaim string      // holds the device ID, a string
	GroupsClaim string      // holds the groups, a list of strings or one string
}

// JWTs identify devices by signed tokens. Safe for concurrent use.
type JWTs struct{ *jwt.Verifier }

// Indexes in jwt.Options.Claims.
const (
	deviceClaim = iota
	groupsClaim
)

// OpenJWTs reads the key files. An error names the file and what is wrong with
// it.
func OpenJWTs(o JWTOptions) (*JWTs, error) {
	o.Keys.Claims = []string{deviceClaim: o.DeviceClaim, groupsClaim: o.GroupsClaim}
	o.Keys.Holders = jwt.Devices
	v, err := jwt.New(o.Keys)
	if err != nil {
		return nil, err
	}
	return &JWTs{v}, nil
}

// check judges a token. The error is an *Error, or a *LaterError that wraps
// jwt.ErrKeysUnavailable.
func (j *JWTs) check(ctx context.Context, text string) (Identity, error) {
	t, err := j.Parse(text)
	if err != nil {
		return Identity{}, ofJWT(err)
	}
	id, err := j.judge(ctx, t)
	if err != nil {
		claimed, _ := t.Claim(deviceClaim).Text()
		return Identity{}, claiming(claimed, ofJWT(err))
	}
	return id, nil
}

// judge proves the token, and reads what it says of a device.
func (j *JWTs) judge(ctx context.Context, t *jwt.Token) (Identity, error) {
	expires, err := j.Prove(ctx, t)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{By: "jwt", Expires: expires}
	if id.Device, err = readDevice(t.Claim(deviceClaim)); err != nil {
		return Identity{}, err
	}
	if id.Groups, err = readGroups(t.Claim(groupsClaim)); err != nil {
		return Identity{}, err
	}
	return id, nil
}

// ofJWT is an error of a token in the words that all credentials share.
func ofJWT(err error) error {
	if e, ok := errors.AsType[*jwt.Error](err); ok {
		return failed(Failure(e.Failure), e.Error())
	}
	return err
}

func readDevice(claim jwt.Value) (string, error) {
	device, ok := claim.Text()
	if !ok || event.ValidateDevice(device) != nil {
		return "", failed(BadDevice, "the claim that names the device is missing or no device ID: 1 to 128 bytes of text that begin with neither * nor @")
	}
	return device, nil
}

func readGroups(claim jwt.Value) ([]string, error) {
	if claim.Absent() {
		return nil, nil
	}
	groups, ok := claim.Texts()
	if !ok {
		return nil, failed(BadGroups, "the claim that names the groups is no list of strings")
	}
	groups, why := tidy(groups)
	if why != "" {
		return nil, failed(BadGroups, "the claim that names the groups "+why)
	}
	return groups, nil
}

// Claims are what a device's token says.
type Claims struct {
	Device      string
	DeviceClaim string // the claim that holds it
	Groups      []string
	GroupsClaim string
	Issuer      string    // empty: none
	Audience    string    // empty: none
	KeyID       string    // kid of the header; empty: none
	Issued      time.Time // iat
	Expires     time.Time // exp
}

// Sign makes a device's token. An error says which claim can't be.
func (c Claims) Sign(by *jwt.Signer) (string, error) {
	if err := event.ValidateDevice(c.Device); err != nil {
		return "", err
	}
	groups, why := tidy(c.Groups)
	if why != "" {
		return "", errors.New("the list of groups " + why)
	}
	payload := map[string]any{"iat": c.Issued.Unix(), "exp": c.Expires.Unix()}
	for name, value := range map[string]string{"iss": c.Issuer, "aud": c.Audience, c.DeviceClaim: c.Device} {
		if value != "" {
			payload[name] = value
		}
	}
	if len(groups) > 0 {
		payload[c.GroupsClaim] = groups
	}
	return by.Sign(c.KeyID, payload)
}
