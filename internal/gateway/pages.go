package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"downlink/internal/cors"
	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/peer"
	"downlink/internal/reload"
	"downlink/internal/server"
	"downlink/internal/ticket"
)

// TicketOptions say how pages in a browser become devices.
type TicketOptions struct {
	SecretFile   string
	TTL, Session time.Duration
}

// pages are what the gateway has for pages in a browser.
type pages struct {
	tickets *ticket.Office // nil: tickets are off
	origins *cors.Policy
	log     atomic.Pointer[eventlog.Log] // nil until it has been reached
}

func openPages(o Options, m instruments) (*pages, []reload.Source, error) {
	p := &pages{origins: cors.New(o.Origins, m.cors)}
	if o.Identity.Tickets == nil {
		return p, nil, nil
	}
	var err error
	if p.tickets, err = ticket.New(ticket.Options{
		SecretFile: o.Identity.Tickets.SecretFile, TTL: o.Identity.Tickets.TTL, Session: o.Identity.Tickets.Session,
		Claim: p.claim, Abroad: p.origins.Abroad, Metrics: m.ticket,
		Secure: func(r *http.Request) bool { return r.TLS != nil || encryptedInFront(r, o.Entrance.TrustedProxies) },
	}); err != nil {
		return nil, nil, fmt.Errorf("the secrets of tickets: %w", err)
	}
	return p, []reload.Source{{Name: ticketSource, Load: p.tickets.Load}}, nil
}

// encryptedInFront reports whether a trusted proxy says that its client speaks
// TLS with it.
func encryptedInFront(r *http.Request, trusted peer.Proxies) bool {
	said := r.Header["X-Forwarded-Proto"]
	return len(said) == 1 && said[0] == "https" && trusted.Trust(peer.Of(r.RemoteAddr))
}

// reached lets tickets be used up, which is noted in the log.
func (p *pages) reached(log eventlog.Log) { p.log.Store(&log) }

func (p *pages) claim(ctx context.Context, device, name string, ttl time.Duration) (first bool, err error) {
	log := p.log.Load()
	if log == nil {
		return false, eventlog.ErrUnavailable
	}
	return (*log).Claim(ctx, event.Shard(device, (*log).Shards()), name, ttl)
}

// byTicket says who comes with a ticket, in the words of the door.
func (p *pages) byTicket(r *http.Request) (door.Identity, error) {
	e, err := p.tickets.Identify(r)
	if err != nil {
		return door.Identity{}, atTheDoor(err)
	}
	id := holder(e.Holder)
	if e.Redeem != nil {
		id.Redeem = func(ctx context.Context) (door.Identity, string, error) {
			h, cookie, err := e.Redeem(ctx)
			if errors.Is(err, ticket.ErrUnavailable) {
				return door.Identity{}, "", &door.LaterError{Refusal: door.RefusedNoTickets, Device: e.Device}
			}
			return holder(h), cookie, atTheDoor(err)
		}
	}
	return id, nil
}

func holder(h ticket.Holder) door.Identity {
	return door.Identity{Device: h.Device, Groups: h.Groups, Expires: h.Expires, Credential: "ticket"}
}

func atTheDoor(err error) error {
	if failed, ok := errors.AsType[*ticket.Error](err); ok {
		return &door.UnauthorizedError{
			Status: failed.Status(), Reason: failed.Error(), Challenge: failed.Challenge(), Word: string(failed.Failure), Device: failed.Device,
		}
	}
	return err
}

// issue answers POST /v1/tickets for those who may.
func (g *Gateway) issue() server.Route {
	gate := g.identity.callers.gate
	return server.Route{Method: http.MethodPost, Path: ticket.Path, Handler: ticket.Issue(g.identity.pages.tickets, func(r *http.Request) (func(string, []string) error, error) {
		caller, err := gate.Check(r)
		if err != nil {
			return nil, err
		}
		return caller.PermitTicket, nil
	})}
}
