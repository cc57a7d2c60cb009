package limits_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/limits"
)

func TestGaugesShowWhatCounts(t *testing.T) {
	r := limits.New(definitions())
	reg := prometheus.NewPedanticRegistry()
	r.Register(reg)
	r.Uses("streams", func() float64 { return 2 })
	r.Bind("streams", func(int64) (int64, string) { return 3, "because" })
	r.ReadFile(limits.File{Path: "f.yml", Error: "broken"})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{"downlink_limit streams": 3, "downlink_limit_configured streams": 4, "downlink_limit_used streams": 2, "downlink_config_file_failed": 1} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for _, s := range r.States() {
		if _, has := got["downlink_limit "+s.Name]; !has {
			t.Errorf("%s has no gauge", s.Name)
		}
	}
}
