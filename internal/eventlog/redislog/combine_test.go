package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// gathering waits until a round is under way and n appends wait for the next.
func (r *rig) gathering(n int) {
	r.Helper()
	c := r.groups[0].home.node().appends
	r.eventually(func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.busy && len(c.waiting) == n
	})
}

// begin starts an append; its result comes when the server lets it.
func (r *rig) begin(ctx context.Context, device string, once *eventlog.Once) <-chan eventlog.Result {
	done := make(chan eventlog.Result, 1)
	go func() { done <- r.try(ctx, device, once) }()
	return done
}

// reads is how often the server has read from a client.
func (r *rig) reads() int {
	r.Helper()
	info, _ := r.redis.Do("INFO", "stats").(string)
	_, after, _ := strings.Cut(info, "total_reads_processed:")
	line, _, _ := strings.Cut(after, "\r\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func TestWhatComesTogetherSharesARoundTrip(t *testing.T) {
	r := newRig(t, nil)
	r.app("a")
	before := r.reads()
	r.redis.Stop()
	results := []<-chan eventlog.Result{r.begin(t.Context(), "first", nil)}
	r.gathering(0)
	const others = 50
	for i := range others {
		var once *eventlog.Once
		if i%10 == 0 {
			once = &eventlog.Once{Scope: "s", Key: fmt.Sprint(i), Fingerprint: "f"}
		}
		results = append(results, r.begin(t.Context(), fmt.Sprint("d", i), once))
	}
	r.gathering(others)
	r.redis.Cont()
	ids := map[event.ID]bool{}
	for _, done := range results {
		res := <-done
		if res.Err != nil || ids[res.IDs[0]] {
			t.Errorf("%+v", res)
		}
		ids[res.IDs[0]] = true
	}
	// The round before, the round, the server being taught the script, INFO.
	if n := r.reads() - before; n > others/2 {
		t.Errorf("%d appends took %d reads", others, n)
	}
}

func TestWhoHasGivenUpIsNotSent(t *testing.T) {
	r := newRig(t, nil)
	r.app("a")
	r.redis.Stop()
	first := r.begin(t.Context(), "first", nil)
	r.gathering(0)
	ctx, cancel := context.WithCancel(t.Context())
	second := r.begin(ctx, "second", nil)
	r.gathering(1)
	cancel()
	if res := <-second; !errors.Is(res.Err, eventlog.ErrUnavailable) || !res.IDs[0].IsZero() {
		t.Errorf("who gave up is told %+v", res)
	}
	r.redis.Cont()
	if res := <-first; res.Err != nil {
		t.Errorf("the other: %v", res.Err)
	}
	r.app("third")
	if n := r.redis.Do("XLEN", stream0); n != int64(3) {
		t.Errorf("%v entries, want three: what nobody waits for was sent", n)
	}
}

// One that does the round itself answers in time too, and its reply, when it
// comes at last, is taken for nobody else's.
func TestWhoDoesTheRoundGivesUpInTime(t *testing.T) {
	for name, give := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.CallTimeout = time.Minute })
			r.app("a")
			r.redis.Stop()
			ctx, cancel := give(t.Context())
			defer cancel()
			began := time.Now()
			if res := r.try(ctx, "b", nil); !errors.Is(res.Err, eventlog.ErrUnavailable) {
				t.Errorf("%+v", res)
			}
			if took := time.Since(began); took > r.opts.CallTimeout/2 {
				t.Errorf("it took %v", took)
			}
			r.redis.Cont()
			id := r.app("c")
			entry := fmt.Sprint(r.redis.Do("XRANGE", stream0, id.String(), id.String()))
			if !strings.Contains(entry, "payload for c") {
				t.Errorf("%v was answered for another event: %s", id, entry)
			}
		})
	}
}

// A connection that went while nobody used it costs no append its answer.
func TestALostConnectionIsNoticedBeforeItIsUsed(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		r.app("a")
		<-time.After(2 * justHeard)
		r.redis.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		r.app("b")
	}
	if n := r.redis.Do("XLEN", stream0); n != int64(6) {
		t.Errorf("%v entries, want six", n)
	}
}

func TestCloseEndsARound(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CallTimeout = time.Minute })
	r.app("a")
	r.redis.Stop()
	defer r.redis.Cont()
	first := r.begin(t.Context(), "first", nil)
	r.gathering(0)
	second := r.begin(t.Context(), "second", nil)
	r.gathering(1)
	began := time.Now()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, done := range []<-chan eventlog.Result{first, second} {
		if res := <-done; !errors.Is(res.Err, eventlog.ErrClosed) {
			t.Errorf("%+v", res)
		}
	}
	if took := time.Since(began); took > r.opts.CallTimeout/2 {
		t.Errorf("closing took %v", took)
	}
}

// An append's allocations, the client's included. More is not wrong, but ought
// to be meant.
func TestAppendAllocations(t *testing.T) {
	r := newRig(t, nil)
	batch := []eventlog.Append{{Events: []event.Event{{Target: "a", Type: "t", Payload: "p"}}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const most = 15
	if n := testing.AllocsPerRun(200, func() {
		if res := r.Append(ctx, batch); res[0].Err != nil {
			t.Error(res[0].Err)
		}
	}); n > most {
		t.Errorf("an append of one event allocates %v times, allowed are %d", n, most)
	} else {
		t.Logf("%v allocations", n)
	}
}
