package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

// A receiving device is one of the Go client package, which can be restarted on
// the same address.
type receiving struct {
	*testing.T
	listener net.Listener
	opts     client.ReceiverOptions

	server *http.Server
	device *client.Receiver

	mu      sync.Mutex
	handled []string
}

func startReceiving(t *testing.T, o client.ReceiverOptions) *receiving {
	d := &receiving{T: t, opts: o}
	testkit.Eventually(t, "a lasting address that nobody else takes", func() (ok bool) {
		var err error
		d.listener, err = net.Listen("tcp", testkit.LastingAddr(t))
		return err == nil
	})
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *receiving) start() {
	d.Helper()
	var err error
	d.device, err = client.NewReceiver(d.opts, client.Handler{
		Event: func(ctx context.Context, e client.Event) error {
			d.note(e.Data)
			return nil
		},
		Resync: func(_ context.Context, r client.Resync) error { d.note("resync " + r.Reason); return nil },
	})
	if err != nil {
		d.Fatal(err)
	}
	d.server = &http.Server{Handler: d.device, ReadHeaderTimeout: 10 * time.Second}
	server, listener := d.server, d.listener
	go func() { _ = server.Serve(listener) }()
}

func (d *receiving) stop() {
	_ = d.server.Close()
	if err := d.device.Close(); err != nil {
		d.Errorf("closing the device: %v", err)
	}
}

// restart ends the device and starts it again, a while later, from what it has
// stored.
func (d *receiving) restart(meanwhile func()) {
	d.Helper()
	addr := d.listener.Addr().String()
	d.stop()
	meanwhile()
	var err error
	if d.listener, err = net.Listen("tcp", addr); err != nil {
		d.Fatal(err)
	}
	d.start()
}

func (d *receiving) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handled = append(d.handled, line)
}

func (d *receiving) wantHandled(want ...string) {
	d.Helper()
	testkit.Eventually(d.T, fmt.Sprintf("%s has handled %v", d.opts.Device, want), func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.handled) > len(want) || len(d.handled) == len(want) && !slices.Equal(d.handled, want) {
			d.Fatalf("%s has handled %q, want %q", d.opts.Device, d.handled, want)
		}
		return len(d.handled) == len(want)
	})
}

// TestDialReceiver: devices of the Go client package are restarted, and so is
// the member that dials them; each event is handled once. One keeps its cursor in
// a file, one says what it has finished and keeps nothing, one takes POSTs.
func TestDialReceiver(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	for _, c := range []struct {
		name, scheme, transport string
		opts                    client.ReceiverOptions
	}{
		{"file", "ws", "websocket", client.ReceiverOptions{Cursors: &client.FileStore{Path: filepath.Join(t.TempDir(), "cursor")}}},
		{"commits", "ws", "websocket", client.ReceiverOptions{Commits: true}},
		{"post", "http", "post", client.ReceiverOptions{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.opts.Device, c.opts.Token = "pos-1", "s3cret"
			d := startReceiving(t, c.opts)
			dir := t.TempDir()
			write(t, filepath.Join(dir, "devices.csv"), "id,url,credential\npos-1,"+c.scheme+"://"+d.listener.Addr().String()+"/events,shops\n")
			write(t, filepath.Join(dir, "credentials.yml"), "- name: shops\n  bearer: s3cret\n")
			start := func() *testkit.Gateway {
				return program.StartDialler(t, args("--log", "file:"+filepath.Join(dir, "log"), "--owner", "static", "--member-index", "0", "--members", "1",
					"--transport", c.transport, "--inventory", filepath.Join(dir, "devices.csv"), "--device-credentials-file", filepath.Join(dir, "credentials.yml"),
					"--dial-schemes", c.scheme, "--dial-allow", "127.0.0.0/8", "--retry", "50ms")...)
			}
			member := start()
			want := []string{"resync no-cursor"}
			settle := func(kept float64) {
				t.Helper()
				d.wantHandled(want...)
				if c.opts.Cursors == nil { // the log keeps how far it has come, within a second
					testkit.Eventually(t, "the position is kept", func() bool { return member.Metric(positionsKept) > kept })
				}
			}
			publish := func(n int) (kept float64) {
				t.Helper()
				kept = member.Metric(positionsKept)
				resp, err := http.Post(member.Backend+"/v1/events", "application/json", strings.NewReader(fmt.Sprintf(`{"device":"pos-1","type":"n","payload":%d}`, n)))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("publishing: %d", resp.StatusCode)
				}
				want = append(want, fmt.Sprint(n))
				return kept
			}
			settle(0)
			settle(publish(1))
			settle(publish(2))
			d.restart(func() { publish(3) })
			settle(0)
			settle(publish(4))
			if code := member.Terminate(); code != 0 {
				t.Errorf("the member ended with %d", code)
			}
			member = start()
			publish(5)
			d.wantHandled(want...)
		})
	}
}

const positionsKept = `downlink_dial_positions_kept_total{result="kept"}`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
