package main

import (
	"bytes"
	"fmt"
	"strings"

	"downlink/internal/config"
)

func configuration(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Configuration\n\n" + generated)
	b.WriteString("Each setting has one name in three spellings: `--write-timeout` on the command line, `DOWNLINK_WRITE_TIMEOUT` in the environment, `write_timeout:` in the YAML file that `--config FILE` (or `DOWNLINK_CONFIG`) names. The command line wins over the environment, the environment over the file, the file over the default. An empty variable counts as absent.\n\n")
	b.WriteString("The gateway starts only if every value is allowed, and otherwise names all problems at once. `downlink check` takes the same settings, prints the effective values and where each came from, and starts nothing. A key that the file has and the gateway doesn't know is an error. Passwords in URLs are never shown.\n\n")
	b.WriteString("Durations are numbers with a unit: `500ms`, `20s`, `15m`, `2h`. Sizes are whole numbers with a unit: `B`, `KiB`, `MiB`, `GiB` (1024) or `kB`, `MB`, `GB` (1000). [downlink.yml](downlink.yml) is a file with every setting at its default.\n\n")
	b.WriteString("| setting | default | what it is |\n| --- | --- | --- |\n")
	for _, k := range config.Keys() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", k.Name, k.Name, code(k.Default), k.Help)
	}
	group := ""
	for _, k := range config.Keys() {
		if k.Group != group {
			group = k.Group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", k.Name, k.Help)
		if k.Price != "" {
			fmt.Fprintf(&b, "%s\n", k.Price)
		}
		fmt.Fprintf(&b, "\n- spellings: `%s`, `%s`, `%s:`\n- kind: %s\n- allowed: %s\n", k.Flag, k.Env, k.Name, k.Kind, k.Allowed)
		if k.Default != "" {
			fmt.Fprintf(&b, "- default: `%s`\n", k.Default)
		}
	}
	return b.Bytes(), nil
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func sample(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Every setting of the gateway, at its default, for a copy of your own that\n# --config FILE names. As it stands the gateway refuses it: without\n# authentication listen must be a loopback address, such as 127.0.0.1:8080.\n# Written by tools/reference; docs/reference/configuration.md says more.\n")
	group := ""
	for _, k := range config.Keys() {
		if k.Group != group {
			group = k.Group
			fmt.Fprintf(&b, "\n# --- %s ---\n", group)
		}
		fmt.Fprintf(&b, "\n# %s\n", k.Help)
		if k.Price != "" {
			fmt.Fprintf(&b, "# %s\n", k.Price)
		}
		fmt.Fprintf(&b, "# Allowed: %s.\n", strings.TrimSuffix(k.Allowed, "."))
		if k.Default == "" {
			fmt.Fprintf(&b, "# %s:\n", k.Name)
			continue
		}
		value := k.Default
		if strings.HasPrefix(value, ":") || strings.HasPrefix(value, "{") {
			value = `"` + value + `"` // YAML would take it for a mapping
		}
		fmt.Fprintf(&b, "%s: %s\n", k.Name, value)
	}
	return b.Bytes(), nil
}
