package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"downlink/internal/dial"
	"downlink/internal/openapi/openapitest"
	"downlink/internal/testkit"
)

// fleet is devices of one server that are dialled, each at /<device>.
type fleet struct {
	*httptest.Server
	mu    sync.Mutex
	got   map[string][]string // by device: the payloads that it has finished
	last  map[string]string   // by device: its cursor
	taken map[string]bool     // by device and ID: what came by POST, which may come again
	calls map[string]int
	deaf  []*websocket.Conn // that are read no more
}

func startFleet(t *testing.T) *fleet {
	f := &fleet{got: make(map[string][]string), last: make(map[string]string), calls: make(map[string]int)}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// inventory is a file that lists devices, reached by a scheme.
func (f *fleet) inventory(t *testing.T, scheme string, devices ...string) string {
	path := filepath.Join(t.TempDir(), "devices.csv")
	testkit.Put(t, path, []byte(f.list(scheme, devices...)))
	return path
}

// list is what such a file holds.
func (f *fleet) list(scheme string, devices ...string) string {
	text := "id,url\n"
	for _, d := range devices {
		text += d + "," + strings.Replace(f.URL, "http", scheme, 1) + "/" + d + "\n"
	}
	return text
}

func (f *fleet) serve(w http.ResponseWriter, r *http.Request) {
	device := r.Header.Get("Downlink-Device")
	if "/"+device != r.URL.Path {
		http.Error(w, "another device", http.StatusNotFound)
		return
	}
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		if f.again(device, r.Header.Get("Downlink-Id")) {
			return
		}
		f.finish(device, r.Header.Get("Downlink-Event"), r.Header.Get("Downlink-Id"), string(body))
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{dial.Subprotocol}})
	if err != nil {
		return
	}
	f.mu.Lock()
	f.calls[device]++
	hello := fmt.Sprintf(`{"hello":{"cursor":%q}}`, f.last[device])
	f.mu.Unlock()
	_ = ws.Write(r.Context(), websocket.MessageText, []byte(hello))
	for {
		_, text, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		var m struct{ ID, Type, Data string }
		if json.Unmarshal(text, &m) == nil && m.Type != "" {
			f.finish(device, m.Type, m.ID, m.Data)
		}
	}
}

func (f *fleet) finish(device, kind, id, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == f.last[device] {
		return
	}
	f.last[device] = id
	if kind != "resync" {
		f.got[device] = append(f.got[device], data)
	}
}

// again reports whether a device has got this before, and notes that it has now.
func (f *fleet) again(device, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken == nil {
		f.taken = make(map[string]bool)
	}
	before := f.taken[device+" "+id]
	f.taken[device+" "+id] = true
	return before
}

func (f *fleet) has(device string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got[device])
}

// dialOptions are those of a member in a test.
func testDial(owner Owner, transport Transport, inventory string) DialOptions {
	return DialOptions{
		Owner: owner, Transport: transport,
		Inventory: InventoryOptions{File: inventory, Interval: 50 * time.Millisecond},
		Egress:    EgressOptions{Schemes: []string{"http", "ws"}, Allow: []string{"127.0.0.0/8"}},
		Members:   1, Replication: 1, LeaseTTL: 3 * time.Second,
		DialTimeout: 30 * time.Second, BackoffMax: time.Second, PostTimeout: 30 * time.Second, Deadline: time.Minute,
	}
}

// dialling is a dialler in this process.
type dialling struct {
	*Dialler
	stop    func()
	backend string
}

func startDialler(t *testing.T, o Options, d DialOptions) *dialling {
	t.Helper()
	g, err := NewDialler(o, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	var once sync.Once
	r := &dialling{Dialler: g, backend: "http://" + g.BackendAddr().String(), stop: func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}}
	t.Cleanup(r.stop)
	testkit.Eventually(t, "the dialler is ready", func() bool { ok, _ := g.Ready(); return ok })
	return r
}

func (d *dialling) publish(t *testing.T, device, text string) {
	t.Helper()
	resp, err := http.Post(d.backend+"/v1/events", "application/json", strings.NewReader(fmt.Sprintf(`{"device":%q,"type":"t","payload":%s}`, device, text)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
}

// status is what GET /v1/dial says, in the form that is described.
func (d *dialling) status(t *testing.T) DialStatus {
	t.Helper()
	resp, err := http.Get(d.backend + DialPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	openapitest.Read(t).Answer(t, DialPath, DialPath, http.MethodGet, resp.StatusCode, resp.Header, body)
	var s DialStatus
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestADiallerAlone: one member, both transports, the embedded log.
func TestADiallerAlone(t *testing.T) {
	t.Parallel()
	for transport, scheme := range map[Transport]string{dial.WebSocket: "ws", dial.Post: "http"} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t)
			list := f.inventory(t, scheme, "a", "b", "c")
			d := startDialler(t, testOptions(t, "file:"+t.TempDir()), testDial(Static, transport, list))
			testkit.Eventually(t, "every device was told to fetch its state", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.last) == 3
			})
			for i := range 20 {
				d.publish(t, "b", fmt.Sprint(i))
			}
			testkit.Eventually(t, "all events have come", func() bool { return len(f.has("b")) == 20 })
			resp, err := http.Get(d.backend + "/v1/devices/b")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `"kind":"dialled"`) {
				t.Errorf("explain says %s, %v", body, err)
			}
			testkit.Eventually(t, "all are connected", func() bool { return d.status(t).Devices == dial.Counts{Devices: 3, Connected: 3} })
			if s := d.status(t); !s.Ready || s.Inventory.Devices != 3 || len(s.Shards) != 64 {
				t.Errorf("it says %+v", s)
			}
			testkit.Put(t, list, []byte(f.list(scheme, "b", "c", "d", "e")))
			testkit.Eventually(t, "the changed inventory is followed", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.last["d"] != "" && f.last["e"] != "" && d.status(t).Devices == (dial.Counts{Devices: 4, Connected: 4})
			})
			f.mu.Lock()
			if n := f.calls["b"]; transport == dial.WebSocket && n != 1 {
				t.Errorf("a device that hasn't changed was dialled %d times", n)
			}
			f.mu.Unlock()
			d.stop()
			if got := f.has("b"); got[0] != "0" || got[19] != "19" || len(f.has("a")) != 0 {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestARingOfDiallers: a second member gets its part, and the first one's when that
// leaves; nothing is lost, and every device has one connection.
func TestARingOfDiallers(t *testing.T) {
	t.Parallel()
	for transport, scheme := range map[Transport]string{dial.WebSocket: "ws", dial.Post: "http"} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			redis := testkit.StartRedis(t).URL()
			f := startFleet(t)
			var devices []string
			for i := range 40 {
				devices = append(devices, fmt.Sprint("device-", i))
			}
			list := f.inventory(t, scheme, devices...)
			start := func(name string) *dialling {
				o := testDial(Ring, transport, list)
				o.Member = name
				return startDialler(t, testOptions(t, redis), o)
			}
			a := start("a")
			testkit.Eventually(t, "the first has every device", func() bool { return a.status(t).Devices.Connected == 40 })
			b := start("b")
			testkit.Eventually(t, "both have half of the shards", func() bool {
				s := b.status(t)
				return s.Moving == 0 && len(s.Members) == 2 && s.Members[0].Shards == 32 && s.Members[1].Shards == 32
			})
			for i := range 100 {
				a.publish(t, devices[i%40], fmt.Sprint(i))
				if i == 50 {
					a.stop()
					a = b
				}
			}
			testkit.Eventually(t, "the second has every device", func() bool { return b.status(t).Devices.Connected == 40 })
			testkit.Eventually(t, "all events have come", func() bool {
				n := 0
				for _, d := range devices {
					n += len(f.has(d))
				}
				return n == 100
			})
			for i, d := range devices {
				for n, got := range f.has(d) {
					if want := fmt.Sprint(i + 40*n); got != want {
						t.Errorf("%s got %s, want %s", d, got, want)
					}
				}
			}
			testkit.Eventually(t, "the first is forgotten", func() bool { return len(b.status(t).Members) == 1 })
			if s := b.status(t); s.Member != "b" || s.Owner != Ring {
				t.Errorf("it says %+v", s)
			}
		})
	}
}

// TestADiallerInHaste doesn't wait for devices that don't answer a goodbye, who have
// a second for it. How long that takes is judged by the best of several.
func TestADiallerInHaste(t *testing.T) {
	t.Parallel()
	took := time.Hour
	for left := attempts; took > 900*time.Millisecond && left > 0; left-- {
		took = endInHaste(t)
	}
	if took > 900*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

func endInHaste(t *testing.T) (took time.Duration) {
	f := startFleet(t)
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{dial.Subprotocol}})
		if err != nil {
			return
		}
		_ = ws.Write(context.Background(), websocket.MessageText, []byte(`{"hello":{}}`))
		f.finish("a", "resync", "1-0", "") // it is connected, and reads nothing
		f.mu.Lock()
		f.deaf = append(f.deaf, ws)
		f.mu.Unlock()
	})
	hurry := make(chan struct{})
	o := testOptions(t, "file:"+t.TempDir())
	o.Hurry = hurry
	d := startDialler(t, o, testDial(Static, dial.WebSocket, f.inventory(t, "ws", "a")))
	testkit.Eventually(t, "the device is connected", func() bool { return d.status(t).Devices.Connected == 1 })
	close(hurry)
	begun := time.Now()
	d.stop()
	took = time.Since(begun)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ws := range f.deaf {
		_ = ws.CloseNow()
	}
	return took
}

// TestTLSAndCredentials: a device is checked by the authorities in a file, and is
// shown a token and a client certificate; its groups are those of the inventory.
func TestTLSAndCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := testkit.NewAuthority(t, "devices")
	testkit.WriteCertificates(t, dir+"/ca.pem", ca.Cert)
	ca.Issue("the-centre", nil).Write(t, dir, "centre")
	ca.Issue("a device", func(c *x509.Certificate) {
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}).Write(t, dir, "device")
	own, err := tls.LoadX509KeyPair(dir+"/device.pem", dir+"/device-key.pem")
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.Cert)
	testkit.Put(t, dir+"/credentials.yml", fmt.Appendf(nil, "- {name: shop, bearer: token-of-the-shop, cert_file: %s/centre.pem, key_file: %s/centre-key.pem}\n", dir, dir))
	for transport, scheme := range map[Transport]string{dial.WebSocket: "wss", dial.Post: "https"} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			f := &fleet{got: make(map[string][]string), last: make(map[string]string), calls: make(map[string]int)}
			var shown, who atomic.Value
			f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				shown.Store(r.Header.Get("Authorization"))
				who.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
				f.serve(w, r)
			}))
			f.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted, MinVersion: tls.VersionTLS12}
			f.StartTLS()
			t.Cleanup(f.Close)
			list := dir + "/" + scheme + ".yml"
			testkit.Put(t, list, fmt.Appendf(nil, "- {id: a, url: %q, groups: [store-7], credential: shop}\n", strings.Replace(f.URL, "https", scheme, 1)+"/a"))
			o := testDial(Static, transport, list)
			o.Egress.Schemes, o.Egress.CAFile, o.Egress.CredentialsFile = []string{scheme}, dir+"/ca.pem", dir+"/credentials.yml"
			d := startDialler(t, testOptions(t, "file:"+t.TempDir()), o)
			d.publish(t, "@store-7", "1")
			testkit.Eventually(t, "the group's event, or a resync after it", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.last["a"] != ""
			})
			d.publish(t, "@store-7", "2")
			testkit.Eventually(t, "the group's second event", func() bool { got := f.has("a"); return len(got) > 0 && got[len(got)-1] == "2" })
			if shown.Load() != "Bearer token-of-the-shop" || who.Load() != "the-centre" {
				t.Errorf("shown were %q and %q", shown.Load(), who.Load())
			}
		})
	}
}

// TestADiallerRefuses what it can't do, before it has begun.
func TestADiallerRefuses(t *testing.T) {
	f := startFleet(t)
	list := f.inventory(t, "ws", "a")
	for want, change := range map[string]func(*Options, *DialOptions){
		"inventory":  func(_ *Options, d *DialOptions) { d.Inventory.File += ".gone.csv" },
		"way to dev": func(_ *Options, d *DialOptions) { d.Egress.Allow = []string{"everywhere"} },
		"address":    func(o *Options, _ *DialOptions) { o.BackendListen = "192.0.2.1:1" },
	} {
		o, d := testOptions(t, "file:"+t.TempDir()), testDial(Static, dial.WebSocket, list)
		change(&o, &d)
		if _, err := NewDialler(o, d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v", want, err)
		}
	}
	d := testDial(Ring, dial.WebSocket, list)
	d.Member = "a"
	g, err := NewDialler(testOptions(t, "file:"+t.TempDir()), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Redis") {
		t.Errorf("a ring on an embedded log: %v", err)
	}
}
