// Command reference writes docs/reference from the code (configuration and its
// sample file, metrics, command line, errors, governor), docs/operate/limits.md, and the list
// of settings by which the Helm chart checks its values. It owns the form of those pages
// and none of their facts. Its invariant: the same code gives the same bytes on
// every machine, so that a test can compare them with what is checked in.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a page differs from the code")
	root := flag.String("root", ".", "the repository's root")
	flag.Parse()
	if err := run(*root, *check, pages()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A page is a file, by its path from the root, and what belongs in it.
type page struct {
	name string
	text func(root string) ([]byte, error)
}

func pages() []page {
	return []page{
		{"docs/reference/configuration.md", configuration},
		{"docs/reference/downlink.yml", sample},
		{"docs/reference/metrics.md", metricsPage},
		{"docs/reference/command-line.md", commandLine},
		{"docs/reference/errors.md", errorsPage},
		{"docs/operate/limits.md", limitsPage},
		{"docs/reference/governor.md", governorPage},
		{"deploy/helm/downlink/files/settings.txt", settingsList},
	}
}

// run writes pages, or compares them.
func run(root string, check bool, pages []page) error {
	var differ []error
	for _, p := range pages {
		path := filepath.Join(root, p.name)
		want, err := p.text(root)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if !check {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				return err
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			differ = append(differ, fmt.Errorf("%s isn't what the code says; run `make docs` and commit the result", p.name))
		}
	}
	return errors.Join(differ...)
}

// generated stands at the top of every page.
const generated = "<!-- Written by tools/reference; change the code and run `make docs`. -->\n\n"
