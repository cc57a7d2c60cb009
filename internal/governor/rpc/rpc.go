// Package rpc owns how a governor is asked and changed by programs over gRPC,
// gRPC-Web and Connect, and the standard health of gRPC beside it. It judges
// nothing: what it says is the JSON of package api in another form, and what it
// changes goes through the same gate. Its invariant: who watches has all of the
// state with each message, so nobody has to put it together from changes.
package rpc

import (
	"context"
	_ "embed" // of governor.proto
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"downlink/internal/governor"
	"downlink/internal/governor/rpc/governorv1"
	"downlink/internal/governor/usage"
)

// Where the handlers belong. What changes the governor has a path of its own, so
// that it can need another right.
const (
	Path       = "/" + governorv1.GovernorName + "/"
	PatchPath  = governorv1.GovernorPatchProcedure
	HealthPath = "/" + grpchealth.HealthV1ServiceName + "/"
	// ProtoPath is where Proto belongs.
	ProtoPath = "/v1/governor.proto"
)

//go:embed governor.proto
var description []byte

// A Governor is what is shown and changed (*governor.Governor).
type Governor interface {
	State() governor.State
	Settings() governor.Settings
	Apply(change func(*governor.Settings) error) (governor.Settings, error)
	Changes(after uint64) (changes []governor.Change, more <-chan struct{})
}

// Options for a Service.
type Options struct {
	Governor Governor
	// Use holds what programs say that they use.
	Use *usage.Book
	// Opinion reports whether what the governor says is worth hearing. Until it does,
	// states are UNAVAILABLE.
	Opinion func() bool
	// Stay, if set, is asked before a watch begins: whether its connection may be
	// held. What it says is the answer.
	Stay func(*http.Request) error
}

const (
	// maxRequestBytes of a message: room for all settings many times over.
	maxRequestBytes = 64 << 10
	// maxWatchers at a time: one for each process of the programs that watch.
	maxWatchers = 1024
	// maxHealthWatchers at a time: whoever reaches the port may.
	maxHealthWatchers = 256
	// writeLimit is how long a watcher may take nothing.
	writeLimit = 30 * time.Second
	// every is how often a watcher hears something, whether it is new or not.
	every = 10 * time.Second
)

// A Service is one governor's. Safe for concurrent use.
type Service struct {
	// Set at construction.
	opts   Options
	mux    *http.ServeMux
	cross  *http.CrossOriginProtection
	health *grpchealth.StaticChecker
	every  time.Duration
	limit  time.Duration

	mu             sync.Mutex // guards what follows
	watching       int        // the governor
	watchingHealth int
	closed         bool
	end            chan struct{} // closed by Close
}

// New makes the service.
func New(o Options) *Service {
	s := &Service{
		opts: o, mux: http.NewServeMux(), cross: http.NewCrossOriginProtection(), every: every, limit: writeLimit, end: make(chan struct{}),
		health: grpchealth.NewStaticChecker(governorv1.GovernorName),
	}
	bounded := connect.WithReadMaxBytes(maxRequestBytes)
	s.setHealth(grpchealth.StatusNotServing)
	s.mux.Handle(governorv1.NewGovernorHandler(s, bounded))
	s.mux.Handle(grpchealth.NewHandler(s.health, bounded))
	return s
}

// ServeHTTP serves everything under Path and HealthPath.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A page of another site could send what changes settings, or take all places.
	if site := r.Header.Get("Sec-Fetch-Site"); s.cross.Check(r) != nil || site == "cross-site" || site == "same-site" {
		http.Error(w, "a page of another origin sent it", http.StatusForbidden)
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(s.limit)) // a watch renews it
	if r.URL.Path == healthWatch {
		s.watchHealth(w, r)
		return
	}
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, &visit{rc, r})))
}

// Proto serves the description from which clients in other languages are made.
func Proto() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(description) // the client has gone: nobody to tell
	})
}

// Open says by health that the service may be used: the governor has an opinion.
func (s *Service) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.setHealth(grpchealth.StatusServing)
	}
}

func (s *Service) setHealth(h grpchealth.Status) {
	s.health.SetStatus("", h) // of the process as a whole
	s.health.SetStatus(governorv1.GovernorName, h)
}

// Close ends every watch, lets none begin, and says by health that the service is
// not to be used any more. It doesn't wait for them.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.setHealth(grpchealth.StatusNotServing)
		close(s.end)
	}
}

// GetState implements governorv1.GovernorHandler.
func (s *Service) GetState(context.Context, *governorv1.GetStateRequest) (*governorv1.GetStateResponse, error) {
	state, err := s.state()
	if err != nil {
		return nil, err
	}
	return &governorv1.GetStateResponse{State: state}, nil
}

// Report implements governorv1.GovernorHandler.
func (s *Service) Report(_ context.Context, r *governorv1.ReportRequest) (*governorv1.ReportResponse, error) {
	err := s.opts.Use.Say(usage.Word{Caller: r.GetCaller(), Use: r.GetUse(), For: usage.Seconds(r.GetForSeconds())})
	if errors.Is(err, usage.ErrFull) {
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	state, err := s.state()
	if err != nil {
		return nil, err
	}
	return &governorv1.ReportResponse{State: state}, nil
}

// Patch implements governorv1.GovernorHandler.
func (s *Service) Patch(_ context.Context, r *governorv1.PatchRequest) (*governorv1.PatchResponse, error) {
	text, err := protojson.Marshal(r.GetSettings())
	if err != nil { // NaN
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("settings hold a number that JSON doesn't have"))
	}
	change, err := governor.Patch(text)
	var now governor.Settings
	if err == nil {
		now, err = s.opts.Governor.Apply(change)
	}
	if faults, ok := errors.AsType[governor.Faults](err); ok {
		return nil, connect.NewError(connect.CodeInvalidArgument, faults)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	answer := new(governorv1.PatchResponse)
	return answer, translate(map[string]any{"settings": now}, answer)
}

func (s *Service) state() (*governorv1.State, error) {
	if !s.opts.Opinion() {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("this governor has just begun, and has no opinion yet: go on with the last ratio that you know, and ask again in some seconds"))
	}
	state := new(governorv1.State)
	return state, translate(struct {
		governor.State
		Settings governor.Settings `json:"settings"`
	}{s.opts.Governor.State(), s.opts.Governor.Settings()}, state)
}

// translate makes a message of what has its form in JSON. What is meant for people
// and isn't in the message is left out.
func translate(from any, into proto.Message) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
	}
	if err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("the state of the governor could not be encoded: %w", err))
	}
	return nil
}
