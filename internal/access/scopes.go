package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"downlink/internal/event"
	"downlink/internal/strictjson"
)

// Scopes are what a token allows, as it is written in the file and in the claim.
type Scopes struct {
	Devices   []string `yaml:"devices"`   // IDs; one that ends with * means all that begin so
	Groups    []string `yaml:"groups"`    // likewise, without the @
	Broadcast bool     `yaml:"broadcast"` // may send to everybody
	Tickets   bool     `yaml:"tickets"`   // may make tickets for devices and groups above
	Governor  bool     `yaml:"governor"`  // may ask the governor, and say what it uses
	Admin     bool     `yaml:"admin"`
}

type rights struct {
	devices, groups                     patterns
	broadcast, tickets, governor, admin bool
}

// maxPatterns bounds what one token can make each event be compared with.
const maxPatterns = 256

// compile checks what was written. Its errors complete the sentence "<who> …".
func (w Scopes) compile() (rights, error) {
	s := rights{broadcast: w.Broadcast, tickets: w.Tickets, governor: w.Governor, admin: w.Admin}
	var err error
	if s.devices, err = newPatterns(w.Devices, event.ValidateDevice); err != nil {
		return s, fmt.Errorf("has devices that can't be: %w", err)
	}
	if s.groups, err = newPatterns(w.Groups, event.ValidateGroup); err != nil {
		return s, fmt.Errorf("has groups that can't be: %w", err)
	}
	switch {
	case len(w.Devices)+len(w.Groups) == 0 && !w.Broadcast && !w.Admin && !w.Tickets && !w.Governor:
		return s, errors.New("may do nothing; give it devices, groups, broadcast, governor or admin")
	case w.Tickets && len(w.Devices) == 0:
		return s, errors.New("has the scope tickets, which is for its devices, and has no devices")
	}
	return s, nil
}

// patterns are names, and beginnings of names.
type patterns struct {
	exact  map[string]bool
	prefix []string // the empty one matches everything
}

func newPatterns(list []string, valid func(string) error) (patterns, error) {
	if len(list) > maxPatterns {
		return patterns{}, fmt.Errorf("there are %d, and at most %d are allowed; use beginnings, such as store-17-*", len(list), maxPatterns)
	}
	p := patterns{exact: make(map[string]bool)}
	for _, text := range list {
		prefix, begins := strings.CutSuffix(text, "*")
		if begins && prefix == "" {
			p.prefix = []string{""}
			return p, nil
		}
		if err := valid(prefix); err != nil {
			return patterns{}, err
		}
		if begins {
			p.prefix = append(p.prefix, prefix)
		} else {
			p.exact[text] = true
		}
	}
	return p, nil
}

func (p patterns) match(name string) bool {
	if p.exact[name] {
		return true
	}
	for _, prefix := range p.prefix {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// claim is the name of the claim with the scopes of a JWT.
const claim = "downlink"

// noScopes is what is wrong with a device's token.
const noScopes = "the token has no scopes (claim " + claim + "): a device's token allows nothing here"

// form is how the claim is written; its members are those of Scopes.
const form = `{"devices":["…"],"groups":["…"],"broadcast":true,"tickets":true,"governor":true,"admin":true}`

// readClaims is who a token's payload says it is of, or why it can't count
// here. Names are compared exactly, and twice is wrong: an issuer that lets its
// users choose claims guards the names that it knows, not their other spellings.
func readClaims(payload []byte) (c *Caller, why string) {
	var subject, scopes json.RawMessage
	err := strictjson.Pick(payload, map[string]any{"sub": &subject, claim: &scopes})
	switch wrong, _ := errors.AsType[*strictjson.Error](err); {
	case err != nil && wrong.Fault == strictjson.Twice:
		return nil, "the token's claim " + wrong.Member + " stands twice"
	case err != nil || scopes == nil:
		return nil, noScopes
	}
	var name string
	if json.Unmarshal(subject, &name) != nil || validName(name) != nil {
		return nil, "the token names no publisher: its claim sub must be 1 to 128 bytes of text"
	}
	var w Scopes
	if strictjson.Read(scopes, map[string]any{
		"devices": &w.Devices, "groups": &w.Groups, "broadcast": &w.Broadcast, "tickets": &w.Tickets, "governor": &w.Governor, "admin": &w.Admin,
	}) != nil {
		return nil, "the token's scopes (claim " + claim + ") aren't of the form " + form + ", each at most once"
	}
	s, err := w.compile()
	if err != nil {
		return nil, "the token's claim " + claim + " " + err.Error()
	}
	return &Caller{name: name, rights: s}, ""
}
