package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const haproxy = "haproxy"

// haproxyArgs runs a master, which a signal lets read the file again, and a worker.
func haproxyArgs(file string) []string { return []string{"-W", "-f", file} }

// RunHAProxy runs one with a configuration of the test's own, and waits until it
// answers. It ends with the test.
func RunHAProxy(tb testing.TB, configuration string, answers func() bool) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "haproxy.cfg")
	Put(tb, file, []byte(configuration))
	startInFront(tb, haproxy, answers, haproxyArgs(file)...)
}

// startInFront starts a program that stands in front of gateways, and waits until it
// answers. It ends with the test, with its workers; of a test that failed it is shown
// what the program said.
func startInFront(tb testing.TB, name string, answers func() bool, args ...string) *process {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil { // a package for servers puts it where only root looks
		path = filepath.Join("/usr/sbin", name)
	}
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("this test needs %s: install it with `apt-get install %s` or `brew install %s`", name, name, name)
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its workers die with it
	p := start(tb, name, cmd, nil)
	tb.Cleanup(func() {
		p.Kill9()
		if tb.Failed() {
			tb.Logf("log of the %s:\n%s", name, p.output)
		}
	})
	Eventually(tb, name+" answers", func() bool {
		if p.Exited() {
			tb.Fatalf("%s ended at once:\n%s", name, p.output)
		}
		return answers()
	})
	return p
}
