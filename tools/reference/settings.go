package main

import (
	"bytes"
	"fmt"

	"downlink/internal/config"
)

// settingsList names every setting of serve, one a line, and marks those that may change
// while a gateway runs. The Helm chart reads it.
func settingsList(string) ([]byte, error) {
	var b bytes.Buffer
	for _, k := range config.Keys() {
		if !k.For(config.Serve) {
			continue
		}
		mark := ""
		if k.Limit == "running" || k.Running {
			mark = " limit"
		}
		fmt.Fprintf(&b, "%s%s\n", k.Name, mark)
	}
	return b.Bytes(), nil
}
