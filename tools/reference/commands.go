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
	overview, err := help(program, "")
	if err != nil {
		return nil, err
	}
	for _, command := range append([]string{""}, commandsIn(overview)...) {
		text, err := help(program, command)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s```\n", strings.TrimSpace("downlink "+command), trimLines(text))
	}
	return b.Bytes(), nil
}

// help is what the program prints about a command, or about itself.
func help(program, command string) ([]byte, error) {
	ask := exec.Command(program, append(strings.Fields(command), "--help")...)
	ask.Env = []string{} // neither a width nor settings from here
	out, err := ask.Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", command, err)
	}
	return out, nil
}

// commandsIn finds the commands in the program's own overview of them: lines that
// are indented by two, of which the words in front of arguments and flags count.
func commandsIn(overview []byte) []string {
	_, list, _ := strings.Cut(string(overview), "\nCommands:\n")
	var found []string
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "   ") {
			continue
		}
		var words []string
		for word := range strings.FieldsSeq(line) {
			if strings.ContainsAny(word[:1], "[<-") {
				break
			}
			words = append(words, word)
		}
		found = append(found, strings.Join(words, " "))
	}
	return found
}

// trimLines removes what editors would remove: spaces at the end of lines.
func trimLines(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
