// Package server owns the two listeners: protocols, time limits, health, and
// stopping in order. What is served under a path comes from outside. Its
// invariant: a slow or silent client is cut while it makes its request, never
// while it reads a stream.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"downlink/internal/lobby"
)

// Options for a Server.
type Options struct {
	Name    string // in log lines and errors: "device" or "back-end"
	Address string // host:port; port 0 picks a free one
	Handler http.Handler
	// Stream, if set, is the handler of StreamPath, which takes connections over:
	// plain requests for it skip net/http (see skim). Not with TLS.
	Stream     http.Handler
	StreamPath string
	// Brief, if set, is the handler of POST BriefPath, which needs no more than
	// a ResponseWriter has to have: brief requests for it skip net/http (see
	// direct). Not with TLS, not together with Stream. It needs Lobby.Keep.
	Brief             http.Handler
	BriefPath         string
	ReadHeaderTimeout time.Duration
	WriteTimeout      time.Duration // HTTP/2: a connection that takes nothing for so long is cut
	MaxHeaderBytes    int
	// MaxConcurrentStreams of an HTTP/2 connection; 0 means net/http's default.
	MaxConcurrentStreams int
	TLS                  *tls.Config // nil: the listener speaks in the clear
	// Lobby counts who is in. What admits a stream is VisitOf(request).Admit.
	Lobby lobby.Options
	// Reserve is how many descriptors are held for when the process has no other.
	Reserve int
	Logger  *slog.Logger
}

// A Server is one listener with its HTTP server.
type Server struct {
	name     string
	lobby    *lobby.Lobby
	listener listener
	socket   net.Listener // as it was bound
	http     *http.Server
}

// idleTimeout closes a kept-alive connection between two requests.
const idleTimeout = 90 * time.Second

// sendBuffer bounds what the kernel holds for a peer that doesn't read: Linux,
// which doubles it, would else let it grow to 4 MiB. It also lets a write time
// limit see a slow peer's progress: a blocked writer is woken when a third of
// the buffer is free, and a third of 4 MiB takes a peer that reads 40 KB/s
// longer than 30 seconds. Measured: with a limit of 1 s a steady reader was cut
// at 1 MB/s without this bound, and isn't at 100 KB/s with it.
const sendBuffer = 64 << 10

// Listen binds the address, so that a wrong or used one is known at once.
func Listen(o Options) (*Server, error) {
	sockets := tuned(o.WriteTimeout)
	socket, err := sockets.Listen(context.Background(), "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("the %s listener can't use the address %s: %w; choose another one or stop the program that has it", o.Name, o.Address, err)
	}
	protocols := protocols(&o)
	kept := newReserve(o.Reserve, o.Lobby.Metrics, o.Logger)
	o.Lobby.Short = kept.short
	l := limited{Listener: socket, lobby: lobby.New(o.Lobby), reserve: kept, cutting: make(chan struct{}, maxCutting), odd: &oddities{log: o.Logger}}
	bound, err := accepting(l, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the %s listener can't be watched: %w", o.Name, err), l.Close())
	}
	return &Server{
		name:     o.Name,
		listener: bound,
		socket:   socket,
		lobby:    l.lobby,
		http: &http.Server{
			Handler:     visiting(settled(o.Handler, o.ReadHeaderTimeout), o.Lobby.Proxies),
			ConnContext: withGuest,
			Protocols:   protocols,
			TLSConfig:   o.TLS,
			// A stream's own deadline can't end it while the connection is
			// blocked: the frame that resets it waits behind what blocks.
			HTTP2: &http.HTTP2Config{
				WriteByteTimeout: o.WriteTimeout, SendPingTimeout: o.WriteTimeout, PingTimeout: o.WriteTimeout,
				MaxConcurrentStreams: o.MaxConcurrentStreams,
			},
			ReadHeaderTimeout: o.ReadHeaderTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    o.MaxHeaderBytes,
			// No WriteTimeout and no ReadTimeout: they would kill streams.
			ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		},
	}, nil
}

// protocols are those that are spoken: HTTP/2 without TLS too, and with TLS unless
// it isn't offered.
func protocols(o *Options) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	if o.TLS == nil {
		p.SetUnencryptedHTTP2(true)
		return p
	}
	if o.TLS.NextProtos == nil {
		o.TLS = o.TLS.Clone()
		o.TLS.NextProtos = []string{"h2", "http/1.1"}
	}
	p.SetHTTP2(slices.Contains(o.TLS.NextProtos, "h2"))
	return p
}

func accepting(l limited, o Options) (listener, error) {
	switch {
	case o.TLS != nil:
		return securing(l, o), nil
	case o.Brief != nil:
		return directly(l, o), nil
	default:
		return skimming(l, o)
	}
}

// Count is how many connections carry no stream, and how many streams were
// admitted; none while there is no server.
func (s *Server) Count() (waiting, streams int) {
	if s == nil {
		return 0, 0
	}
	waiting, streams, _ = s.lobby.Count()
	return waiting, streams
}

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers requests until Shutdown or Close; then it returns nil.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the %s listener ended: %w", s.name, err)
	}
	return nil
}

// Shutdown accepts nothing more, waits for the requests in progress until ctx
// ends, and cuts the rest.
func (s *Server) Shutdown(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.listener.drain(ctx)
}

// Close frees the listener of a server that was never served, and cuts all
// that it serves otherwise.
func (s *Server) Close() {
	s.http.Close()
	s.listener.Close()
}
