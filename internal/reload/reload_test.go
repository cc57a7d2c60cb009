package reload

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWatcher: each source is loaded at each interval, and what happens is
// said and counted once.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, gone := errors.New("broken"), errors.New("gone")
		answers := []struct {
			changed bool
			err     error
		}{{}, {changed: true}, {err: broken}, {err: broken}, {err: gone}, {}, {}, {err: broken}, {changed: true}, {}}
		looked := 0
		var said strings.Builder
		m := NewMetrics(nil, "a", "b")
		w := New(Options{
			Sources: []Source{
				{Name: "b", Load: func() (bool, error) { return false, nil }},
				{Name: "a", Load: func() (bool, error) { looked++; return answers[looked-1].changed, answers[looked-1].err }},
			},
			Metrics: m, Logger: slog.New(slog.NewTextHandler(&said, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5*time.Second*time.Duration(len(answers)) + time.Second) //nolint:forbidigo // in a bubble
		cancel()
		ended.Wait()
		if looked != len(answers) {
			t.Errorf("it looked %d times in 51 s", looked)
		}
		for text, want := range map[string]int{"can't be used; what": 3, "error=broken": 2, "error=gone": 1, "changed files are in use": 2, "as before": 1, "source=b": 0} {
			if n := strings.Count(said.String(), text); n != want {
				t.Errorf("%q is said %d times, want %d:\n%s", text, n, want, said.String())
			}
		}
		for result, want := range map[string]float64{loadDone: 2, loadFailed: 3} {
			if n := testutil.ToFloat64(m.loads.WithLabelValues("a", result)); n != want {
				t.Errorf("%s: %v", result, n)
			}
		}
	})
}

// TestHangup: when asked to, it looks at once, and goes on in its rhythm.
func TestHangup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked atomic.Int32
		hangup := make(chan os.Signal, 1)
		w := New(Options{
			Sources: []Source{{Name: "a", Load: func() (bool, error) { looked.Add(1); return false, nil }}},
			Hangup:  hangup, Metrics: NewMetrics(nil, "a"), Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = w.Run(ctx) })
		hangup <- syscall.SIGHUP
		synctest.Wait()
		if looked.Load() != 1 {
			t.Errorf("it looked %d times", looked.Load())
		}
		time.Sleep(11 * time.Second) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if looked.Load() != 3 {
			t.Errorf("it looked %d times in 11 s and when it was asked", looked.Load())
		}
		cancel()
		ended.Wait()
	})
}
