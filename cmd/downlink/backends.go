package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// An askable is the back-end port of one gateway.
type askable struct {
	name string // for people
	url  string // without a slash at its end
	dial string // host:port to connect to; empty: as the URL says
}

// findBackends are the gateways behind some URLs.
func findBackends(ctx context.Context, urls []string) ([]askable, error) {
	var found []askable
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, usage(errors.New("--backend isn't an address of a back end; write it as http://127.0.0.1:9090"))
		}
		base := strings.TrimRight(text, "/")
		addresses := addressesOf(ctx, u.Hostname())
		if len(addresses) < 2 {
			found = append(found, askable{name: u.Host, url: base})
			continue
		}
		for _, a := range addresses {
			at := net.JoinHostPort(a, portOf(u))
			found = append(found, askable{name: at, url: base, dial: at})
		}
	}
	return found, nil
}

// addressesOf are the addresses of a host name that may each be a gateway's; none
// where that can't be told.
func addressesOf(ctx context.Context, host string) []string {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // asking by name says why
	}
	return distinct(all)
}

// distinct are the addresses of different machines: those of IPv4, if there are
// any, because one machine mostly has one of each kind. None if all are this one.
func distinct(all []netip.Addr) []string {
	var four, six []string
	for _, a := range all {
		switch a = a.Unmap(); {
		case a.IsLoopback():
			return nil
		case a.Is4():
			four = append(four, a.String())
		default:
			six = append(six, a.String())
		}
	}
	if len(four) > 0 {
		return four
	}
	return six
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// silence says in a few words why a gateway doesn't answer: neither its URL,
// which may hold a password, nor its address, which stands beside.
func silence(err error) error {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return errors.New("no answer within the timeout")
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return fmt.Errorf("no answer: %w", err)
}

// segment is a device ID as one segment of a path. Dots alone would be taken for
// a step in the path.
func segment(device string) string {
	if strings.Trim(device, ".") == "" {
		return strings.ReplaceAll(device, ".", "%2E")
	}
	return url.PathEscape(device)
}
