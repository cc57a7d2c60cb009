package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// pauseFile says how long a tail on Redis rests between two reads while events
// are frequent, and pauseLine is where.
const pauseFile = "internal/gateway/log.go"

var pauseLine = []byte("return 5 * time.Millisecond")

// unpaced is the same site with gateways whose tails never rest between two
// reads. Nobody can want that, so there is no setting for it: another text of
// one line is given to the compiler.
func (s site) unpaced(l *lab) (site, error) {
	content, err := os.ReadFile(pauseFile)
	if err != nil {
		return s, err
	}
	if n := bytes.Count(content, pauseLine); n != 1 {
		return s, fmt.Errorf("%q stands %d times in %s, not once: what is the pause now?", pauseLine, n, pauseFile)
	}
	changed, err := l.write("log.go", string(bytes.Replace(content, pauseLine, []byte("return time.Duration(0)"), 1)))
	if err != nil {
		return s, err
	}
	original, err := filepath.Abs(pauseFile)
	if err != nil {
		return s, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return s, err
	}
	file, err := l.write("overlay.json", string(overlay))
	if err != nil {
		return s, err
	}
	s.gateway = l.path("downlink-unpaced")
	build := exec.CommandContext(l.ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-overlay", file, "-o", s.gateway, "./cmd/downlink")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return s, fmt.Errorf("building downlink without pauses: %w\n%s", err, out)
	}
	return s, nil
}

// fleetWithoutPauses is a fleet of such gateways.
func (s site) fleetWithoutPauses(n int) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		changed, err := s.unpaced(l)
		if err != nil {
			return nil, err
		}
		return changed.fleet(n)(l)
	}
}
