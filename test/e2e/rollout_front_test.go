package e2e

import (
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"downlink/internal/testkit"
)

// A berth is a place for a gateway behind HAProxy: one after the other takes it.
type berth struct{ Name, Device, Backend string }

// A front is HAProxy before some berths. Like deploy/compose/haproxy.cfg it asks
// /readyz, and sends nobody to who isn't ready; it looks more often, and takes nobody
// who is slow to answer for one who isn't there.
type front struct {
	tb              testing.TB
	Devices, Events string // addresses for devices and publishers
	Berths          []berth
	Most            int    // connections
	Socket          string // for questions to HAProxy
}

var frontConfig = template.Must(template.New("").Parse(`
global
    maxconn {{.Most}}
    stats socket {{.Socket}} mode 600 level user
defaults
    mode http
    timeout connect 2s
    timeout client 1h
    timeout server 1m
    timeout http-request 1m
    timeout check 1m
    retries 2
    option redispatch
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 200ms fall 1 rise 1
frontend devices
    bind {{.Devices}}
    option forwardfor
    default_backend gateways
backend gateways
    balance leastconn
{{- range .Berths}}
    server {{.Name}} {{.Device}}
{{- end}}
frontend publishers
    bind {{.Events}}
    default_backend backends
backend backends
    balance roundrobin
{{- range .Berths}}
    server {{.Name}} {{.Backend}}
{{- end}}
`))

// startFront starts it before n berths; it ends with the test.
func startFront(tb testing.TB, n, most int) *front {
	tb.Helper()
	dir, err := os.MkdirTemp("", "front") // a test's own has too long a name for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // a directory of the system's
	f := &front{
		tb: tb, Most: most, Socket: filepath.Join(dir, "haproxy"),
		Devices: testkit.LastingAddr(tb), Events: testkit.LastingAddr(tb),
	}
	for i := range n {
		f.Berths = append(f.Berths, berth{fmt.Sprint("gateway-", i+1), testkit.LastingAddr(tb), testkit.LastingAddr(tb)})
	}
	var text strings.Builder
	if err := frontConfig.Execute(&text, f); err != nil {
		tb.Fatal(err)
	}
	testkit.RunHAProxy(tb, text.String(), func() bool { return f.look() != nil })
	return f
}

// A mooring is what HAProxy says of a berth.
type mooring struct {
	up          bool
	connections int
}

// look asks HAProxy about all berths; nil if it doesn't answer.
func (f *front) look() map[string]mooring {
	conn, err := net.DialTimeout("unix", f.Socket, time.Second)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "show stat\n"); err != nil {
		return nil
	}
	rows, err := csv.NewReader(conn).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil
	}
	place := make(map[string]int, len(rows[0]))
	for i, name := range rows[0] {
		place[name] = i
	}
	all := make(map[string]mooring, len(f.Berths))
	for _, row := range rows[1:] {
		if row[place["# pxname"]] != "gateways" || row[place["svname"]] == "BACKEND" {
			continue
		}
		n, _ := strconv.Atoi(row[place["scur"]])
		all[row[place["svname"]]] = mooring{strings.HasPrefix(row[place["status"]], "UP"), n}
	}
	return all
}

// launch starts the i-th gateway at a free berth, and returns when HAProxy has seen it.
func (f *front) launch(t *testing.T, build testkit.Program, i int, args ...string) *testkit.Gateway {
	t.Helper()
	at := f.Berths[i%len(f.Berths)]
	g := build.StartGateway(t, append(slices.Clone(args), "--listen", at.Device, "--backend-listen", at.Backend)...)
	testkit.Eventually(t, "HAProxy has seen the gateway", func() bool { return f.look()[at.Name].up })
	return g
}
