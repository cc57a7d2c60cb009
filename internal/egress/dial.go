package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// maxHeaderBytes bounds what a device may answer before its body.
const maxHeaderBytes = 16 << 10

// newTransport makes connections that show a certificate; nil: none. HTTP/1.1
// alone: one request at a time on a connection, so that it is always known what
// a connection that breaks has taken with it.
func (e *Egress) newTransport(roots *x509.CertPool, cert *tls.Certificate) *http.Transport {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"http/1.1"}}
	if cert != nil {
		secure.Certificates = []tls.Certificate{*cert}
	}
	return &http.Transport{
		DialContext: e.dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return e.dialTLS(ctx, network, address, secure)
		},
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:     true, // or a small answer could become a large one
		MaxIdleConns:           e.opts.MaxIdle,
		MaxIdleConnsPerHost:    e.opts.MaxIdle, // many devices may be behind one host
		IdleConnTimeout:        e.opts.IdleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// dial makes a connection to a host and port.
func (e *Egress) dial(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, p, cancel := called(ctx)
	defer cancel()
	c, err := e.reach(ctx, p, address)
	return c, e.counted(err)
}

func (e *Egress) dialTLS(ctx context.Context, _, address string, secure *tls.Config) (net.Conn, error) {
	ctx, p, cancel := called(ctx)
	defer cancel()
	c, err := e.reach(ctx, p, address)
	if err != nil {
		return nil, e.counted(err)
	}
	p.enter(TLS)
	secure = secure.Clone()
	host, _, _ := net.SplitHostPort(address)
	secure.ServerName = strings.TrimSuffix(host, ".")
	ctx, end := context.WithTimeout(ctx, e.opts.TLSTimeout)
	defer end()
	over := tls.Client(c, secure)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = c.Close() // it never was a connection
		return nil, e.counted(p.fail(TLS, err))
	}
	return over, nil
}

// called is the context of a dial that ends with the call that wanted it: the
// transport would let it go on, and calls that give up would leave more and more
// of them behind.
func called(ctx context.Context) (context.Context, *Progress, context.CancelFunc) {
	p, _ := ctx.Value(progressKey{}).(*Progress)
	ctx, cancel := context.WithCancel(ctx)
	if p == nil {
		return ctx, nil, cancel
	}
	stop := context.AfterFunc(p.ctx, cancel)
	return ctx, p, func() { stop(); cancel() }
}

func (e *Egress) counted(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		e.opts.Metrics.failed(known.Stage)
		return err
	}
	if err == nil {
		e.opts.Metrics.connections.Inc()
	}
	return err
}

// reach resolves and connects.
func (e *Egress) reach(ctx context.Context, p *Progress, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &Error{Stage: Policy, Err: errURL}
	}
	addrs, err := e.resolve(ctx, p, host)
	if err != nil {
		return nil, err
	}
	p.enter(Connect)
	ctx, cancel := context.WithTimeout(ctx, e.opts.ConnectTimeout)
	defer cancel()
	var first error
	for i, a := range addrs {
		c, err := e.connect(ctx, len(addrs)-i, net.JoinHostPort(a.String(), port))
		if err == nil {
			return c, nil
		}
		// What can't be reached says more than what may not be.
		if known, ok := errors.AsType[*Error](first); first == nil || ok && known.Stage == Policy {
			first = err
		}
	}
	return nil, p.fail(Connect, first)
}

// maxAddresses is how many addresses of a name are tried.
const maxAddresses = 8

func (e *Egress) resolve(ctx context.Context, p *Progress, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	p.enter(Resolve)
	ctx, cancel := context.WithTimeout(ctx, e.opts.ResolveTimeout)
	defer cancel()
	addrs, err := e.opts.Resolve(ctx, host)
	if err != nil {
		return nil, p.fail(Resolve, err)
	}
	if len(addrs) == 0 {
		return nil, &Error{Stage: Resolve, Err: fmt.Errorf("%s has no address", clip(host))}
	}
	return addrs[:min(len(addrs), maxAddresses)], nil
}

// connect tries one of so many addresses, with its share of the time that is
// left.
func (e *Egress) connect(ctx context.Context, left int, address string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	c, err := e.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // without it there is only more on its way
	}
	return c, nil
}

// sendBuffer bounds what the kernel holds for a device that doesn't read, as it does
// on the devices' port of a gateway. Linux, which doubles it, would else let it
// grow to 4 MiB. What the kernel has of an event can't be taken back when a lease
// ends.
const sendBuffer = 64 << 10

// control is called with the address that is about to be connected to.
func (e *Egress) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Error{Stage: Policy, Err: errURL}
	}
	return e.permitAddr(a.Addr())
}
