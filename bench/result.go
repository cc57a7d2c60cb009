package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A result is one table as it was measured; bench/results keeps it.
type result struct {
	Table    string            `json:"table"`
	When     string            `json:"when"` // day, UTC
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Runs     []record          `json:"runs"` // in the order in which they ran
}

// A record is one entry in one round.
type record struct {
	Entry  string `json:"entry"`
	Round  int    `json:"round"`
	Values values `json:"values"`
}

func newResult(ctx context.Context, t table, s site) (*result, error) {
	r := &result{
		Table:    t.name,
		When:     time.Now().UTC().Format(time.DateOnly),
		Machine:  machine(),
		Versions: map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")},
	}
	var err error
	if r.Versions["Downlink"], err = printed(ctx, "git", "describe", "--tags", "--always", "--dirty"); err != nil {
		return nil, err
	}
	for name, command := range map[string][]string{
		"Redis":   {"redis-server", "--version"},
		"nginx":   {"nginx", "-v"},
		"Nchan":   {"dpkg-query", "-W", "-f", "${Version}", "libnginx-mod-nchan"},
		"Pushpin": {"pushpin", "--version"},
	} {
		// A peer that is missing fails when its turn comes, with what to do.
		if text, err := printed(ctx, command[0], command[1:]...); err == nil {
			r.Versions[name] = versionIn(text)
		}
	}
	if info, err := buildinfo.ReadFile(s.peer("centrifugo")); err == nil {
		for _, m := range append(info.Deps, &info.Main) {
			if strings.HasPrefix(m.Path, "github.com/centrifugal/centrifugo/") {
				r.Versions["Centrifugo"] = strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return r, nil
}

func printed(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// versionIn is the first word of a line that looks like a version.
func versionIn(text string) string {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" /=\n", r) }) {
		word = strings.TrimPrefix(word, "1:")
		if word[0] >= '0' && word[0] <= '9' && strings.Contains(word, ".") {
			return word
		}
	}
	return text
}

// machine says what the figures were measured on, as far as it tells itself.
func machine() map[string]string {
	m := map[string]string{"cores": strconv.Itoa(runtime.NumCPU()), "architecture": runtime.GOARCH}
	if name := fieldOf("/proc/cpuinfo", "model name"); name != "" {
		m["processor"] = name
	}
	if kb, err := strconv.Atoi(strings.TrimSuffix(fieldOf("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		m["memory"] = fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-") // what follows is the builder's
		m["kernel"] = version
	}
	return m
}

// fieldOf is the value of the first line "name: value" of a file, or "".
func fieldOf(path, name string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// save writes a result, a run on a line, so that a diff shows runs.
func (r *result) save(path string) error {
	var b bytes.Buffer
	head, err := json.Marshal(struct {
		Table    string            `json:"table"`
		When     string            `json:"when"`
		Machine  map[string]string `json:"machine"`
		Versions map[string]string `json:"versions"`
	}{r.Table, r.When, r.Machine, r.Versions})
	if err != nil {
		return err
	}
	b.Write(bytes.TrimSuffix(head, []byte("}")))
	b.WriteString(",\"runs\":[")
	for i, run := range r.Runs {
		line, err := json.Marshal(run)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(line)
	}
	b.WriteString("\n]}\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func readResult(path string) (*result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r result
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

// of lists the runs of an entry, by round.
func (r *result) of(entry string) []values {
	var found []values
	for _, run := range r.Runs {
		if run.Entry == entry {
			found = append(found, run.Values)
		}
	}
	return found
}
