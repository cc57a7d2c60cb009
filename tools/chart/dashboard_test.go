package chart

import (
	"encoding/json"
	"testing"

	core "k8s.io/api/core/v1"
)

// A dashboard is what is looked at of Grafana's.
type dashboard struct {
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		GridPos struct {
			H, W, X, Y int
		} `json:"gridPos"`
		Targets []struct {
			RefID        string `json:"refId"`
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

func dashboardOf(t *testing.T, r release) (d dashboard) {
	t.Helper()
	for _, c := range all[*core.ConfigMap](r) {
		if text, is := c.Data["downlink.json"]; is {
			if c.Labels["grafana_dashboard"] != "1" {
				t.Error("Grafana's sidecar doesn't find the dashboard")
			}
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(d.Panels) == 0 {
		t.Fatal("there is no dashboard")
	}
	return d
}
