package access

import (
	"fmt"

	"downlink/internal/event"
	"downlink/internal/problem"
)

// A Caller is somebody who was let in. Its methods for what it may do return
// nil, or a *problem.Document that names what is missing. Safe for concurrent
// use.
type Caller struct {
	name    string
	all     bool // scopes don't count
	rights  rights
	denials *denials // nil if all
}

// everybody is who calls an open gate.
var everybody = &Caller{all: true}

// Name is the publisher's name: the scope of its idempotency keys and rates. It
// is empty where nobody is told from others.
func (c *Caller) Name() string { return c.name }

// Permit is about sending to a device, "@group" or everybody ("*").
func (c *Caller) Permit(target string) error {
	switch {
	case c.all:
		return nil
	case target == event.Broadcast:
		if c.rights.broadcast {
			return nil
		}
		return c.deny("may not send to everybody: it has no scope broadcast", "broadcast")
	case event.ToAll(target):
		group := target[len(event.GroupPrefix):]
		if c.rights.groups.match(group) {
			return nil
		}
		return c.deny(fmt.Sprintf("may not send to the group %q: its scope groups doesn't cover it", group), "groups")
	default:
		if c.rights.devices.match(target) {
			return nil
		}
		return c.deny(fmt.Sprintf("may not send to the device %q: its scope devices doesn't cover it", target), "devices")
	}
}

// PermitTicket is about a ticket, which lets its bearer be a device of groups:
// that is more than sending to it, and needs a scope of its own.
func (c *Caller) PermitTicket(device string, groups []string) error {
	if c.all {
		return nil
	}
	if !c.rights.tickets {
		return c.deny("may not make tickets: it has no scope tickets", "tickets")
	}
	if !c.rights.devices.match(device) {
		return c.deny(fmt.Sprintf("may not make a ticket for the device %q: its scope devices doesn't cover it", device), "devices")
	}
	for _, g := range groups {
		if !c.rights.groups.match(g) {
			return c.deny(fmt.Sprintf("may not make a ticket for the group %q: its scope groups doesn't cover it", g), "groups")
		}
	}
	return nil
}

// PermitAdmin is about calls that change the gateway, or show its inside.
func (c *Caller) PermitAdmin() error {
	if c.all || c.rights.admin {
		return nil
	}
	return c.deny("may not do this: it has no scope admin", "admin")
}

// PermitGovernor is about asking the governor, which changes nothing.
func (c *Caller) PermitGovernor() error {
	if c.all || c.rights.governor || c.rights.admin {
		return nil
	}
	return c.deny("may not ask the governor: it has neither the scope governor nor admin", "governor")
}

func (c *Caller) deny(what, scope string) *problem.Document {
	return c.denials.deny(told{scopeMissing, c.name, scope}, "", problem.New(problem.Forbidden, fmt.Sprintf("the publisher %q %s", c.name, what)).
		Advise(fmt.Sprintf("Use a token whose scope %s allows it, or have it added to this one; docs/operate/publishers.md lists the scopes.", scope)))
}
