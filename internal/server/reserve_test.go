//go:build unix

package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/lobby"
)

// shortEnv has this test binary play a process that runs out of descriptors.
const shortEnv = "DOWNLINK_TEST_SHORT"

// TestOutOfDescriptors: with none left, health is answered, streams are refused
// and those that are open stay; nothing spins, and it ends when there are some
// again.
func TestOutOfDescriptors(t *testing.T) {
	if way := os.Getenv(shortEnv); way != "" {
		runShort(t, way)
		return
	}
	for _, way := range []string{"skimmed", "net/http"} {
		t.Run(way, func(t *testing.T) {
			if way == "skimmed" && runtime.GOOS != "linux" {
				t.Skip("nothing is skimmed here")
			}
			testShort(t, way)
		})
	}
}

// A child is the process that runs out of descriptors.
type child struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func (c *child) ask(command string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		c.t.Fatal(err)
	}
	return c.says()
}

func (c *child) says() string {
	c.t.Helper()
	for c.out.Scan() {
		if said, ok := strings.CutPrefix(c.out.Text(), "child: "); ok {
			return said
		}
	}
	c.t.Fatalf("it says nothing more: %v", c.out.Err())
	return ""
}

func testShort(t *testing.T, way string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestOutOfDescriptors$")
	cmd.Env = append(os.Environ(), shortEnv+"="+way)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	c := &child{t: t, in: in, out: bufio.NewScanner(out)}
	address := c.says()
	send := func(request string) *bufio.Reader {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(hung))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(conn)
	}
	wellAnd := func(streams string) {
		t.Helper()
		if got := answered(t, send("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); got != "200 well" {
			t.Errorf("health: %q", got)
		}
		if streams == "" {
			return
		}
		if got := answered(t, send(get)); got != streams {
			t.Errorf("a stream: %q, want %q", got, streams)
		}
	}
	stream := send(get)
	c.ask("await 1")
	c.ask("exhaust")
	for range 20 {
		wellAnd("503 descriptors\n")
	}
	for range 50 {
		send("GET /hea")
	}
	wellAnd("503 descriptors\n")
	if used, err := strconv.ParseFloat(c.ask("busy"), 64); err != nil || used > 0.6 {
		t.Errorf("waiting costs %v of a processor (%v)", used, err)
	}
	if n := c.ask("shortages"); n == "0" {
		t.Error("no shortage was counted: the test tests nothing")
	}
	c.ask("free")
	wellAnd("")
	second := send(get)
	c.ask("await 2")
	c.ask("release")
	for _, r := range []*bufio.Reader{stream, second} {
		if got := answered(t, r); got != "200 held" {
			t.Errorf("a stream that was open: %q", got)
		}
	}
	c.ask("await 0")
}

// runShort is the child: it serves, and does what it is told.
func runShort(t *testing.T, way string) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	meter := lobby.NewMetrics(nil, "device").Of("device")
	s := serve(t, func(o *Options) {
		o.Handler = admitting(hold)
		if way == "skimmed" {
			o.Stream, o.StreamPath = o.Handler, "/events"
		}
		o.Lobby.Metrics, o.Reserve = meter, 4
		o.Logger = slog.New(slog.DiscardHandler)
	})
	fmt.Println("child:", s.Addr())
	var taken []*os.File
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var n int
		switch command := in.Text(); command {
		case "exhaust":
			taken = exhaust(t)
		case "free":
			for _, f := range taken {
				f.Close()
			}
		case "release":
			release()
		case "busy":
			before, began := processor(t), time.Now()
			<-time.After(500 * time.Millisecond)
			fmt.Println("child:", (processor(t)-before).Seconds()/time.Since(began).Seconds())
			continue
		case "shortages":
			fmt.Println("child:", testutil.ToFloat64(meter.Short))
			continue
		default:
			if _, err := fmt.Sscanf(command, "await %d", &n); err != nil {
				t.Fatal(command)
			}
			awaitStreams(t, s, n)
		}
		fmt.Println("child: done")
	}
}

// exhaust lowers the limit, and takes every descriptor that is left.
func exhaust(t *testing.T) (taken []*os.File) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 128
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return taken
		}
		taken = append(taken, f)
	}
}

func processor(t *testing.T) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
