package publish_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/filelog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/limits"
	"downlink/internal/publish"
	"downlink/internal/testkit"
)

// onRealLogs runs a test on each log that the product has.
func onRealLogs(t *testing.T, test func(t *testing.T, r *rig, log eventlog.Log)) {
	open := map[string]func(t *testing.T) (eventlog.Log, error){
		"embedded": func(t *testing.T) (eventlog.Log, error) {
			return filelog.Open(filelog.Options{Dir: t.TempDir(), Shards: shards, Window: time.Minute, MaxEventBytes: limits.Always(1 << 20), Logger: slog.New(slog.DiscardHandler)})
		},
		"redis": func(t *testing.T) (eventlog.Log, error) {
			return redislog.Open(context.Background(), redislog.Options{
				URL: testkit.StartRedis(t).URL(), Prefix: "pos-ev", Shards: shards, Window: time.Minute, MaxEventBytes: limits.Always(1 << 20),
				Logger: slog.New(slog.DiscardHandler), Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
			})
		},
	}
	for name, o := range open {
		t.Run(name, func(t *testing.T) {
			log, err := o(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, newRig(t, func(o *publish.Options) { o.Log, o.AppendTimeout = log, time.Minute }), log)
		})
	}
}

// read is everything that a shard holds.
func read(t *testing.T, log eventlog.Log, shard int) []eventlog.Entry {
	t.Helper()
	page, err := log.Range(context.Background(), shard, event.ID{}, event.MaxID, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

func TestRealLogHoldsWhatIsAnswered(t *testing.T) {
	onRealLogs(t, func(t *testing.T, r *rig, log eventlog.Log) {
		texts := []string{"", "a\nb\r\nc\rd", "  x\n", "nul\x00", "\u2028 \U0001F600", strings.Repeat("x", 999)}
		for _, text := range texts {
			got := r.batch(fmt.Sprintf(`{"device":"demo","type":"t","text":%s,"key":"k","trace":"00-a"}`, quoted(text)))
			if len(got) != 1 || got[0].Error != nil {
				t.Fatalf("%q: %+v", text, got)
			}
			entries := read(t, log, got[0].Shard)
			last := entries[len(entries)-1]
			want := event.Event{Target: "demo", Type: "t", Payload: text, Key: "k", Trace: "00-a"}
			if last.ID != got[0].ID || last.Event != want || last.Fault != "" {
				t.Errorf("stored %+v, want %v %+v", last, got[0].ID, want)
			}
		}
	})
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestRealLogKeepsTheOrderOfABatch(t *testing.T) {
	onRealLogs(t, func(t *testing.T, r *rig, log eventlog.Log) {
		var body strings.Builder
		const n = 1500
		for i := range n {
			extra := ""
			switch i % 5 {
			case 1:
				extra = fmt.Sprintf(`,"idem":"k%d"`, i)
			case 3:
				extra = `,"idem":"always the same"`
			}
			text := i
			if i%5 == 3 {
				text = 0 // one content under the shared key
			}
			device := fmt.Sprintf("d%d", i%11)
			if i%5 == 3 {
				device = "d0"
			}
			fmt.Fprintf(&body, `{"device":"%s","type":"t","text":"%d"%s}`+"\n", device, text, extra)
		}
		got := r.batch(body.String())
		if len(got) != n {
			t.Fatalf("%d answers", len(got))
		}
		for i, a := range got {
			if a.Error != nil || (a.Replayed != (i%5 == 3 && i != 3)) || (a.Replayed && a.ID != got[3].ID) {
				t.Fatalf("line %d: %+v %+v", i, a, a.Error)
			}
		}
		last, entries := map[string]int{}, 0
		for shard := range shards {
			for _, e := range read(t, log, shard) {
				entries++
				var i int
				if _, err := fmt.Sscan(e.Event.Payload, &i); err != nil {
					t.Fatal(err)
				}
				if i > 0 && i <= last[e.Event.Target] {
					t.Errorf("%s: %d after %d", e.Event.Target, i, last[e.Event.Target])
				}
				if i > 0 {
					last[e.Event.Target] = i
				}
			}
		}
		if want := n - n/5 + 1; entries != want {
			t.Errorf("%d entries, want %d", entries, want)
		}
	})
}

func TestRealLogRepeatsAnAnswer(t *testing.T) {
	onRealLogs(t, func(t *testing.T, r *rig, log eventlog.Log) {
		for i, body := range []string{
			`{"device":"demo","type":"t","payload":{"a":1}}`, `{"devices":["demo","A83F21","d1","d2","d3"],"type":"t","text":"x"}`,
			`{"device":"*","type":"t","text":"x"}`, `{"device":"@g","type":"t","text":"x"}`,
		} {
			key := fmt.Sprint("k", i)
			first, second := r.post(body, "Idempotency-Key", key), r.post(body, "Idempotency-Key", key)
			if first.Code != 200 || first.Body.String() != second.Body.String() || second.Header().Get("Idempotent-Replayed") != "true" || first.Header().Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: %s, then %s", body, first.Body, second.Body)
			}
			if a := r.post(strings.Replace(body, `"t"`, `"u"`, 1), "Idempotency-Key", key); a.Code != http.StatusConflict {
				t.Errorf("%s: another content: %d %s", body, a.Code, a.Body)
			}
		}
		entries := 0
		for shard := range shards {
			entries += len(read(t, log, shard))
		}
		if entries != 1+5+4+4 {
			t.Errorf("%d entries", entries)
		}
	})
}
