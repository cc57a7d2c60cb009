package inventory

import (
	"fmt"
	"net/url"
	"slices"
	"unicode/utf8"

	"downlink/internal/event"
)

// A Device is where a device can be reached.
type Device struct {
	ID         string   // by the rules of event.ValidateDevice
	URL        string   // absolute, without user, password and fragment
	Groups     []string // sorted, each once; by the rules of event.ValidateGroup
	Credential string   // the name of what is shown to it; empty: nothing
}

// Equal reports whether two are the same in everything.
func (d Device) Equal(o Device) bool {
	return d.ID == o.ID && d.URL == o.URL && d.Credential == o.Credential && slices.Equal(d.Groups, o.Groups)
}

// Bounds of an entry. A URL of that length fits into a request line that every
// server takes (RFC 9110 §4.1 asks for 8,000 bytes).
const (
	maxURLBytes        = 2048
	maxGroups          = 64
	maxCredentialBytes = 128
)

// check makes an entry one that can be used, or says why it can't. The text
// never holds the URL: somebody may have written a password into it.
func (d *Device) check() error {
	if err := event.ValidateDevice(d.ID); err != nil {
		return fmt.Errorf("its id isn't one: %w", err)
	}
	if err := checkURL(d.URL); err != nil {
		return err
	}
	if len(d.Groups) > maxGroups {
		return fmt.Errorf("it has %d groups, and at most %d are allowed", len(d.Groups), maxGroups)
	}
	for _, g := range d.Groups {
		if err := event.ValidateGroup(g); err != nil {
			return fmt.Errorf("a group of it can't be: %w", err)
		}
	}
	slices.Sort(d.Groups)
	d.Groups = slices.Compact(d.Groups)
	if !utf8.ValidString(d.Credential) || len(d.Credential) > maxCredentialBytes {
		return fmt.Errorf("the name of its credential has more than %d bytes, or isn't UTF-8", maxCredentialBytes)
	}
	return nil
}

func checkURL(text string) error {
	if text == "" {
		return fmt.Errorf("it has no url")
	}
	if len(text) > maxURLBytes {
		return fmt.Errorf("its url has more than %d bytes", maxURLBytes)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // its text would repeat the URL
		return fmt.Errorf("its url can't be parsed")
	case u.User != nil:
		return fmt.Errorf("its url holds a user or password; use a credential instead")
	case u.Scheme == "" || u.Hostname() == "":
		return fmt.Errorf("its url has no scheme or no host; write it whole, such as https://pos-1.example.com/events")
	case u.Fragment != "":
		return fmt.Errorf("its url has a fragment (#…), which no request carries")
	}
	return nil
}
