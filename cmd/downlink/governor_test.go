package main

import (
	"path/filepath"
	"strings"
	"testing"

	"downlink/internal/testkit"
)

// TestTheHelpOfGovernor says first that a gateway needs none, and shows its own
// settings alone.
func TestTheHelpOfGovernor(t *testing.T) {
	for _, args := range [][]string{{"governor", "--help"}, {"governor", "run", "--help"}} {
		code, out, errs := execute(t, "", nil, args...)
		first := strings.Index(out, "A gateway has a governor built in")
		if code != exitDone || errs != "" || first < 0 || first > 300 {
			t.Errorf("%v: %d, at %d, %s", args, code, first, errs)
		}
	}
	_, out, _ := execute(t, "", nil, "governor", "run", "--help")
	for flag, own := range map[string]bool{
		"--governor-listen=": true, "--governor-maximum=": true, "--governor-file=": true, "--log=": true, "--backend-auth=": true,
		"--listen=": false, "--backend-listen=": false, "--owner=": false, "--max-connections=": false,
	} {
		if strings.Contains(out, flag) != own {
			t.Errorf("%s is in the help: %v", flag, !own)
		}
	}
	if _, out, _ := execute(t, "", nil, "serve", "--help"); strings.Contains(out, "--governor-listen=") {
		t.Error("serve shows settings of governor")
	}
}

func TestGovernorRefusesWhatCantBe(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "governor.yml")
	testkit.Put(t, bad, []byte("signals: {redis_memory: {threshold: 70}, tail_lag: {threshold: 5}}\n"))
	for args, want := range map[string]string{
		"governor": "name the Redis that is to be watched",
		"governor --log redis://:hunter2@h --governor-listen :9095":   "--governor-listen 127.0.0.1:9095",
		"governor --log redis://:hunter2@h --listen :8080":            "is a setting of downlink serve",
		"governor --log redis://:hunter2@h:port":                      "isn't accepted",
		"governor --log redis://:hunter2@h --governor-file " + bad:    "tail_lag",
		"governor --log redis://:hunter2@h --governor-file gone.yml":  "gone.yml",
		"governor --log redis://:hunter2@h --backend-auth tokens":     "publishers_file",
		"governor --log redis://:hunter2@h --governor-listen 1.2.3.4": "isn't an address",
		"check --for governor":                                        "Nothing was started",
		"check --for governor --log redis://h --governor-file " + bad: "tail_lag",
	} {
		code, out, errs := execute(t, "", nil, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, want) || out != "" || strings.Contains(errs, "hunter2") {
			t.Errorf("%q: %d %s %s", args, code, out, errs)
		}
	}
	code, out, errs := execute(t, "", []string{"DOWNLINK_LOG=redis://:hunter2@h", "DOWNLINK_MAX_CONNECTIONS=7"}, "check", "--for", "governor")
	words := strings.Join(strings.Fields(out), " ")
	if code != exitDone || !strings.Contains(words, "governor_listen 127.0.0.1:9095 default") || strings.Contains(words, "max_connections") || strings.Contains(out+errs, "hunter2") ||
		!strings.Contains(errs, "max_connections (environment DOWNLINK_MAX_CONNECTIONS) is a setting of downlink serve and downlink dial") && !strings.Contains(errs, "DOWNLINK_MAX_CONNECTIONS") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
