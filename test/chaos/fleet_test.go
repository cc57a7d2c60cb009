package chaos

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// A fleet is the gateways of a run, each behind a proxy that devices connect to
// and, where the log's address allows it, one of its own to the log.
type fleet struct {
	members []*member
}

// A member is one gateway through all its lives, on the same addresses.
type member struct {
	tb      testing.TB
	args    []string
	conf    string         // its configuration file
	front   *testkit.Proxy // for devices
	backend string         // where publishers go
	link    *testkit.Proxy // to the log; nil where gateways find servers by themselves
	process *testkit.Gateway
	down    bool // it was ended on purpose
}

func newMember(tb testing.TB, link *testkit.Proxy, args ...string) *member {
	listen, backend := testkit.LastingAddr(tb), testkit.LastingAddr(tb)
	m := &member{
		tb: tb, link: link, conf: filepath.Join(tb.TempDir(), "downlink.yml"),
		front: testkit.StartProxy(tb, listen), backend: "http://" + backend,
	}
	m.configure(64)
	m.args = append([]string{"--config", m.conf, "--listen", listen, "--backend-listen", backend}, args...)
	m.launch()
	m.process.AwaitReady()
	return m
}

// launch starts the gateway, the first time or anew.
func (m *member) launch() { m.process = program(m.tb).LaunchGateway(m.tb, m.args...) }

// settle gives a gateway that was just launched time to listen: frozen before, it
// refuses publishers at once, who use their attempts up. Its log may be away, and
// come back by whoever calls this.
func (m *member) settle() {
	for range 100 {
		if m.process.Started() {
			return
		}
		wait(m.tb.Context(), 20*time.Millisecond)
	}
}

// configure writes the file with another limit, in one go.
func (m *member) configure(pending int) {
	next := m.conf + ".next"
	text := "pending_events: " + itoa(pending) + "\n"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		m.tb.Fatal(err)
	}
	if err := os.Rename(next, m.conf); err != nil {
		m.tb.Fatal(err)
	}
}

// pick is one of the gateways.
func (f *fleet) pick(rng *rand.Rand) *member { return f.members[rng.IntN(len(f.members))] }

// exits names the gateways that ended although nobody ended them.
func (f *fleet) exits() (at []int) {
	for i, m := range f.members {
		if !m.down && m.process.Exited() {
			at = append(at, i)
		}
	}
	return at
}
