package chart

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const dockerfile = root + "/deploy/docker/Dockerfile"

// stages parses the Dockerfile as BuildKit does; its lints are failures.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	ast, err := parser.Parse(bytes.NewReader([]byte(read(t, dockerfile))))
	if err != nil {
		t.Fatal(err)
	}
	if len(ast.Warnings) > 0 {
		t.Errorf("the parser warns: %+v", ast.Warnings)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, description, _, message string, _ []parser.Range) {
		t.Errorf("%s: %s (%s)", rule, message, description)
	}})
	all, _, err := instructions.Parse(ast.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// commands are those of a stage of one kind.
func commands[T instructions.Command](s instructions.Stage) (found []T) {
	for _, c := range s.Commands {
		if c, is := c.(T); is {
			found = append(found, c)
		}
	}
	return found
}

// TestImageHoldsNothingElse than the program and the certificates, and it isn't root's.
func TestImageHoldsNothingElse(t *testing.T) {
	all := stages(t)
	build, image := all[0], all[len(all)-1]
	if len(all) != 2 || build.Name != "build" || image.BaseName != "scratch" {
		t.Fatalf("the stages are %q from %q, and %q from %q", build.Name, build.BaseName, image.Name, image.BaseName)
	}
	want := "golang:" + strings.TrimPrefix(runtime.Version(), "go") + "-bookworm"
	if build.BaseName != want {
		t.Errorf("it is built with %s; the tests run with %s", build.BaseName, want)
	}
	if n := len(commands[*instructions.RunCommand](image)); n != 0 {
		t.Errorf("%d commands are to run in an image without a shell", n)
	}
	if users := commands[*instructions.UserCommand](image); len(users) != 1 || users[0].User != "65532:65532" {
		t.Errorf("it runs as %v", users)
	}
	for _, c := range commands[*instructions.EntrypointCommand](image) {
		if c.PrependShell || !slices.Equal(c.CmdLine, []string{"/downlink"}) {
			t.Errorf("it starts %q, by a shell: %v", c.CmdLine, c.PrependShell)
		}
	}
	for _, c := range commands[*instructions.HealthCheckCommand](image) {
		if !slices.Equal(c.Health.Test, []string{"CMD", "/downlink", "health"}) {
			t.Errorf("health is asked by %q", c.Health.Test)
		}
	}
	if n := len(commands[*instructions.AddCommand](build)) + len(commands[*instructions.AddCommand](image)); n != 0 {
		t.Errorf("%d ADD", n)
	}
}

// A built is the image, as its steps have made it.
type built struct {
	dir    string // of the files of the image
	binary string
}

// theImage follows the Dockerfile by hand, once: the context that its COPY lines
// take, the command that builds, and the files of the last stage.
var theImage = sync.OnceValues(func() (built, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return built{}, err
	}
	source, out, image := filepath.Join(dir, "src"), filepath.Join(dir, "out"), filepath.Join(dir, "image")
	b := built{image, filepath.Join(image, "downlink")}
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return b, err
	}
	first, last, _ := strings.Cut(string(text), "FROM scratch")
	copied := regexp.MustCompile(`(?m)^COPY (?:--from=(\w+) )?(.+) (\S+)$`)
	for _, m := range copied.FindAllStringSubmatch(first, -1) {
		for name := range strings.FieldsSeq(m[2]) {
			if err := copyTree(filepath.Join(root, name), filepath.Join(source, name)); err != nil {
				return b, err
			}
		}
	}
	run := regexp.MustCompile(`(?m)^RUN (.*go build .*)$`).FindStringSubmatch(first)
	if run == nil {
		return b, fmt.Errorf("no command of %s builds", dockerfile)
	}
	cmd := exec.Command("sh", "-ec", strings.ReplaceAll(run[1], "/out/", out+"/"))
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "VERSION=image-test", "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH)
	if text, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("%s: %w\n%s", run[1], err, text)
	}
	for _, m := range copied.FindAllStringSubmatch(last, -1) {
		from := m[2] // of the machine that builds
		if rest, is := strings.CutPrefix(m[2], "/out/"); is {
			from = filepath.Join(out, rest)
		}
		if err := copyTree(from, filepath.Join(image, m[3])); err != nil {
			return b, err
		}
	}
	return b, nil
})

// copyTree copies a file, or a directory with what is in it.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode())
}

func image(t *testing.T) built {
	t.Helper()
	b, err := theImage()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMain(m *testing.M) {
	code := m.Run()
	if b, err := theImage(); err == nil {
		_ = os.RemoveAll(filepath.Dir(b.dir))
	}
	os.Exit(code)
}

// inImage is a command in the image: as its user, who has no files of his own there
// and can write none.
func inImage(t *testing.T, b built, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/downlink", args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = confined(b.dir)
	cmd.Env = []string{"DOWNLINK_LISTEN=127.0.0.1:0", "DOWNLINK_BACKEND_LISTEN=127.0.0.1:0", "DOWNLINK_LOG=file:/data", "DOWNLINK_DRAIN_WAIT=0s"}
	return cmd
}

// TestImageServes: the program runs with nothing but what is in the image and a
// volume for its log, says that it is well, and ends when it is asked to.
func TestImageServes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("images are for Linux")
	}
	b := image(t)
	out, err := inImage(t, b, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "image-test") {
		t.Fatalf("version: %v\n%s", err, out)
	}
	// A volume, which is the user's.
	data := filepath.Join(b.dir, "data")
	if err := os.Mkdir(data, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	g := serve(t, inImage(t, b, "serve"))
	health := inImage(t, b, "health", "--wait", "1m")
	health.Env = append(health.Env, "DOWNLINK_BACKEND="+g.backend)
	if out, err := health.CombinedOutput(); err != nil || string(out) != "ready\n" {
		t.Errorf("health: %v %s", err, out)
	}
	g.end(t)
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"data", "downlink", "etc"}; !slices.Equal(names, want) {
		t.Errorf("the image holds %q, want %q", names, want)
	}
}

// A running gateway.
type running struct {
	cmd     *exec.Cmd
	backend string
	log     *bytes.Buffer
}

// serve starts a gateway, and waits until it says where.
func serve(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	g := &running{cmd: cmd, log: new(bytes.Buffer)}
	cmd.Stderr = g.log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for g.backend == "" && lines.Scan() {
		g.backend, _ = strings.CutPrefix(lines.Text(), "back end: ")
		if !strings.HasPrefix(lines.Text(), "back end: ") {
			g.backend = ""
		}
	}
	if g.backend == "" {
		_ = cmd.Wait()
		t.Fatalf("the gateway ended at once:\n%s", g.log)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return g
}

// end asks it to end, and waits until it has.
func (g *running) end(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Minute, func() { _ = g.cmd.Process.Kill() })
	defer kill.Stop()
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("it ended by %v:\n%s", err, g.log)
	}
}

// processMetrics are the names of what a running gateway shows, of itself too.
func processMetrics(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.Command(image(t).binary, "serve", "--listen", "127.0.0.1:0", "--backend-listen", "127.0.0.1:0", "--log", "file:"+t.TempDir(), "--drain-wait", "0s")
	g := serve(t, cmd)
	defer g.end(t)
	resp, err := http.Get(g.backend + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := scraped(string(page))
	for _, name := range []string{"sse_active_connections", "downlink_build_info", "go_gc_gomemlimit_bytes"} {
		if !found[name] {
			t.Fatalf("a gateway doesn't show %s", name)
		}
	}
	return found
}
