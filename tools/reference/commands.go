package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// commandLine prints what the program itself says: its help, 80 columns wide.
func commandLine(root string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "downlink-reference-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory may stay
	program := filepath.Join(dir, "downlink")
	build := exec.Command("go", "build", "-o", program, "./cmd/downlink")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the program: %w\n%s", err, out)
	}
	var b bytes.Buffer
	b.WriteString("# Command line\n\n" + generated)
	b.WriteString("What `downlink --help` and `downlink COMMAND --help` print. [configuration.md](configuration.md) explains the settings of `serve` and `check` in full.\n")
	for _, command := range []string{"", "serve", "publish", "listen", "load", "check", "token make", "token hash", "token inspect", "token secret", "version"} {
		args := append(strings.Fields(command), "--help")
		help := exec.Command(program, args...)
		help.Env = []string{} // neither a width nor settings from here
		out, err := help.Output()
		if err != nil {
			return nil, fmt.Errorf("%s --help: %w", command, err)
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s```\n", strings.TrimSpace("downlink "+command), trimLines(out))
	}
	return b.Bytes(), nil
}

// trimLines removes what editors would remove: spaces at the end of lines.
func trimLines(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
