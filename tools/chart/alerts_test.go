package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

const (
	alertsFile  = chartDir + "/files/alerts.yml"
	alertsTests = "testdata/alerts_test.yml"
)

// promtool runs Prometheus's own checker.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	name, err := exec.LookPath("promtool")
	if err != nil {
		name = root + "/bin/promtool" // where scripts/deps puts it
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// alerts are the rules as they stand in the PrometheusRule.
func alerts(t *testing.T) []monitoring.Rule {
	t.Helper()
	r := install(t, "full", valuesOf(t, "testdata/good/full.yml"))
	var rules []monitoring.Rule
	for _, g := range only[*monitoring.PrometheusRule](t, r).Spec.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no alerts")
	}
	return rules
}

// TestAlertsByPromtool: their syntax, and when each of them fires.
func TestAlertsByPromtool(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", alertsFile)
	promtool(t, "test", "rules", alertsTests)
}

// TestEveryAlertIsTested: it fires in one test, and is silent in another.
func TestEveryAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				AlertName string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsTests)), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			fires[a.AlertName] = fires[a.AlertName] || len(a.ExpAlerts) > 0
			silent[a.AlertName] = silent[a.AlertName] || len(a.ExpAlerts) == 0
		}
	}
	for _, rule := range alerts(t) {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s: fires in a test: %v; is silent in one: %v", rule.Alert, fires[rule.Alert], silent[rule.Alert])
		}
	}
}

// TestAlertsNameWhatThereIs: metrics, labels, and a section for who is woken.
func TestAlertsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	known, others := documented(t), processMetrics(t)
	page := read(t, root+"/docs/operate/alerts.md")
	for _, rule := range alerts(t) {
		checkExpression(t, rule.Alert, rule.Expr.String(), known, others)
		if !strings.Contains(page, "\n### "+rule.Alert+"\n") {
			t.Errorf("docs/operate/alerts.md has no section %s", rule.Alert)
		}
		if rule.Annotations["runbook"] != "docs/operate/alerts.md#"+strings.ToLower(rule.Alert) {
			t.Errorf("%s leads to %s", rule.Alert, rule.Annotations["runbook"])
		}
		switch rule.Labels["severity"] {
		case "critical", "warning", "info":
		default:
			t.Errorf("%s has severity %q", rule.Alert, rule.Labels["severity"])
		}
	}
}

// TestDashboard: its queries are well formed, name what there is, and say whose
// value they show where they don't sum it up.
func TestDashboard(t *testing.T) {
	t.Parallel()
	r := install(t, "full", valuesOf(t, "testdata/good/full.yml"))
	board := dashboardOf(t, r)
	known, others := documented(t), processMetrics(t)
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	seen, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if seen[p.ID] {
			t.Errorf("two panels have the ID %d", p.ID)
		}
		seen[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if places[[2]int{x, y}] != "" || x >= 24 {
					t.Errorf("%s has no place beside %s", p.Title, places[[2]int{x, y}])
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		for _, q := range p.Targets {
			e := strings.NewReplacer("$__rate_interval", "1m").Replace(q.Expr)
			checkExpression(t, p.Title, e, known, others)
			aggregated := strings.Contains(e, "sum") || strings.Contains(e, "count") || strings.Contains(e, "avg") || strings.Contains(e, "max") || strings.Contains(e, "min")
			if !aggregated && !strings.Contains(q.LegendFormat, "{{instance}}") {
				t.Errorf("%s: one line for each pod, and nothing says which", p.Title)
			}
			if !strings.Contains(e, `namespace=~"$namespace", job=~"$job"`) {
				t.Errorf("%s isn't about the chosen gateways: %s", p.Title, e)
			}
			text, err := yaml.Marshal(map[string]string{"record": "dashboard:expression", "expr": e})
			if err != nil {
				t.Fatal(err)
			}
			rules.WriteString("  - " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ") + "\n    labels: {panel: \"" + strings.ReplaceAll(p.Title, `"`, "") + "\", query: \"" + q.RefID + "\"}\n")
		}
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
