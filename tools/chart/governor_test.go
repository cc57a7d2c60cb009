package chart

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ungoverned is the sentence without which nobody installs without the governor.
func ungoverned(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?s)define "downlink.ungoverned" -}}\n(.*?)\n`).FindStringSubmatch(read(t, chartDir+"/templates/_governor.tpl"))
	if m == nil {
		t.Fatal("the chart asks for no sentence")
	}
	return m[1]
}

// governorFile is what the gateways of a release read.
func governorFile(t *testing.T, r release) (found map[string]any) {
	t.Helper()
	for _, c := range all[*core.ConfigMap](r) {
		if text, is := c.Data["governor.yml"]; is {
			if err := yaml.UnmarshalStrict([]byte(text), &found); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// TestTheChartInsists: the governor is off where it was said in words, and nowhere
// else; both are said in the notes and on the chart's page.
func TestTheChartInsists(t *testing.T) {
	t.Parallel()
	for name, values := range cases(t) {
		r := install(t, name, values)
		governor, _ := values["governor"].(map[string]any)
		off := governor["disabled"] == ungoverned(t)
		on, told := governorFile(t, r)["on"]
		if told != off || off && on != false || strings.Contains(r.notes, "the governor is off") != off {
			t.Errorf("%s: asked to be off: %v; the file says on: %v (%v); the notes:\n%s", name, off, on, told, r.notes)
		}
	}
	values := valuesOf(t, "testdata/good/ungoverned.yml")
	for _, near := range []any{"", false, true, "off", strings.ToLower(ungoverned(t)), ungoverned(t) + "!"} {
		values["governor"] = map[string]any{"disabled": near}
		if _, _, err := render(t, values); (err == nil) != (near == "" || near == false) {
			t.Errorf("with %v: %v", near, err)
		}
		if near == "" || near == false {
			if file := governorFile(t, install(t, "on", values)); len(file) > 0 {
				t.Errorf("with %v: %v", near, file)
			}
		}
	}
	if !strings.Contains(read(t, chartDir+"/README.md"), ungoverned(t)) {
		t.Error("the chart's page doesn't name the sentence")
	}
}

// TestGovernorExamplesOfTheChartsPage can be installed.
func TestGovernorExamplesOfTheChartsPage(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```yaml\n(governor:.*?)```").FindAllStringSubmatch(read(t, chartDir+"/README.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("there are %d examples", len(blocks))
	}
	for _, m := range blocks {
		values := valuesOf(t, "testdata/good/least.yml")
		if err := yaml.UnmarshalStrict([]byte(m[1]), &values); err != nil {
			t.Fatal(err)
		}
		if file := governorFile(t, install(t, "example", values)); len(file) == 0 {
			t.Errorf("it changes nothing:\n%s", m[1])
		}
	}
}

// TestGatewaysTakeTheGovernorsFile: what the chart writes is what the program reads.
func TestGatewaysTakeTheGovernorsFile(t *testing.T) {
	t.Parallel()
	b := image(t)
	check := func(r release) (string, error) {
		dir := t.TempDir()
		files(t, dir)
		cmd := exec.Command(b.binary, "check")
		cmd.Env = settings(t, r, dir)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	for name, values := range cases(t) {
		if text, err := check(install(t, name, values)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	values := valuesOf(t, "testdata/good/full.yml")
	governor, _ := values["governor"].(map[string]any)
	governor["settings"] = map[string]any{"signals": map[string]any{"redis_memory": map[string]any{"threshold": 0.97}}} // over the wall
	if text, err := check(install(t, "wrong", values)); err == nil || !strings.Contains(text, "signals.redis_memory.wall") {
		t.Errorf("a file that no gateway takes: %v\n%s", err, text)
	}
}

// TestTheContainerOfTheChartsPage is one, and its program takes what it is told.
func TestTheContainerOfTheChartsPage(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile("(?s)```yaml\n(- name: governor\n.*?)```").FindStringSubmatch(read(t, chartDir+"/README.md"))
	if m == nil {
		t.Fatal("there is no container")
	}
	var all []core.Container
	if err := yaml.UnmarshalStrict([]byte(m[1]), &all); err != nil || len(all) != 1 {
		t.Fatal(err, len(all))
	}
	cmd := exec.Command(image(t).binary, "check", "--for", "governor")
	for _, e := range all[0].Env {
		if e.ValueFrom != nil {
			e.Value = "redis://redis:6379"
		}
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(all[0].LivenessProbe.Exec.Command[3], regexp.MustCompile(`governor_listen +(\S+)`).FindStringSubmatch(string(text))[1]) {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestKafkasPasswordStaysInItsSecret.
func TestKafkasPasswordStaysInItsSecret(t *testing.T) {
	t.Parallel()
	file := governorFile(t, install(t, "full", valuesOf(t, "testdata/good/full.yml")))
	want := map[string]any{
		"brokers": []any{"kafka-0.kafka:9093", "kafka-1.kafka:9093"}, "groups": []any{"orders", "leaderboard"},
		"tls":  map[string]any{"ca_file": "/etc/downlink/kafka-ca/ca.crt"},
		"user": "downlink", "mechanism": "SCRAM-SHA-512", "password_file": "/etc/downlink/kafka/password",
	}
	if diff := cmp.Diff(want, file["kafka"]); diff != "" {
		t.Error(diff)
	}
}

// TestSchemaKnowsTheGovernor: the settings and signals that the schema takes are
// those of the reference.
func TestSchemaKnowsTheGovernor(t *testing.T) {
	t.Parallel()
	var signals struct {
		PropertyNames        struct{ Enum []string }
		Properties           map[string]json.RawMessage // of those that are a part of 1
		AdditionalProperties struct{ Properties map[string]json.RawMessage }
	}
	var schema struct {
		Properties struct {
			Governor struct {
				Properties struct {
					Settings struct{ Properties map[string]json.RawMessage }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, chartDir+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	settings := schema.Properties.Governor.Properties.Settings.Properties
	if err := json.Unmarshal(settings["signals"], &signals); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range settings {
		if name != "signals" && name != "true" { // on, as YAML reads it
			names = append(names, name)
		}
	}
	for _, signal := range signals.PropertyNames.Enum {
		for name := range signals.AdditionalProperties.Properties {
			names = append(names, "signals."+signal+"."+name)
		}
	}
	var documented []string
	page := read(t, root+"/docs/reference/governor.md")
	_, law, _ := strings.Cut(page, "## Settings of the law")
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(law, -1) {
		documented = append(documented, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^#### (signals\.\S+)$`).FindAllStringSubmatch(page, -1) {
		documented = append(documented, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(#\w+\) \| (\S+) \|`).FindAllStringSubmatch(page, -1) {
		if _, limited := signals.Properties[m[1]]; slices.Contains(signals.PropertyNames.Enum, m[1]) && limited != (m[2] == "ratio") {
			t.Errorf("%s is in %s; the schema takes it for a part of 1: %v", m[1], m[2], limited)
		}
	}
	slices.Sort(names)
	slices.Sort(documented)
	if diff := cmp.Diff(documented, names); diff != "" {
		t.Errorf("the reference and the schema: %s", diff)
	}
}
