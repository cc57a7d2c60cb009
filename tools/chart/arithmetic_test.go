package chart

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"

	"downlink/internal/config"
	"downlink/internal/drain"
)

// TestTheGatewayCountsTheSame: with what the chart tells it, the gateway finds that
// it can close all of its connections at the rate, within its deadline, and that it
// is killed no earlier. And the chart gives it little more than that.
func TestTheGatewayCountsTheSame(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 7, 999, 2500, 20_000, 123_456} {
		for i, rate := range []int{7, 50, 200, 10_000} {
			for _, atOnce := range []int{1, 4} {
				if connections/(rate/atOnce) < 80_000 { // a day is the most
					checkArithmetic(t, connections, rate, atOnce, 15*(i%2))
				}
			}
		}
	}
}

func checkArithmetic(t *testing.T, connections, rate, atOnce, wait int) {
	t.Helper()
	name := fmt.Sprintf("%d connections, %d reconnects a second, %d at once, %d s", connections, rate, atOnce, wait)
	values := valuesOf(t, "testdata/good/least.yml")
	values["connectionsPerGateway"] = connections
	values["gatewaysAtOnce"] = atOnce
	values["drain"] = map[string]any{"waitSeconds": wait, "reconnectsPerSecond": rate, "lastSeconds": 10}
	r := install(t, name, values)
	d := only[*apps.Deployment](t, r)
	grace := seconds(*d.Spec.Template.Spec.TerminationGracePeriodSeconds)
	c := load(t, r)

	terms := drain.Terms{Wait: c.DrainWait, Rate: c.DrainRate, Deadline: c.DrainDeadline, Last: c.ShutdownTimeout}
	plan := terms.Plan(connections)
	switch {
	case c.MaxConnections != connections:
		t.Errorf("%s: max_connections is %d", name, c.MaxConnections)
	case c.DrainRate*atOnce > rate:
		t.Errorf("%s: %d gateways move %d devices a second each", name, atOnce, c.DrainRate)
	case terms.AtRate() < connections:
		t.Errorf("%s: the gateway finds that it can close %d: %s", name, terms.AtRate(), terms)
	case plan.Pace > float64(c.DrainRate):
		t.Errorf("%s: the gateway has to close %v a second: %s", name, plan.Pace, terms)
	case plan.Total() > c.DrainDeadline:
		t.Errorf("%s: the gateway needs %s: %s", name, plan.Total(), terms)
	case c.DrainDeadline-plan.Total() > 3*time.Second:
		t.Errorf("%s: the gateway has %s too much: %s", name, c.DrainDeadline-plan.Total(), terms)
	case grace < asked(t, terms.String()):
		t.Errorf("%s: killed after %s: %s", name, grace, terms)
	case seconds(int64(d.Spec.MinReadySeconds)) < plan.Wait+plan.Tell+plan.Close:
		t.Errorf("%s: the next one leaves after %d s, before this one has", name, d.Spec.MinReadySeconds)
	case *d.Spec.ProgressDeadlineSeconds <= d.Spec.MinReadySeconds:
		t.Errorf("%s: a rollout is given up after %d s", name, *d.Spec.ProgressDeadlineSeconds)
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// asked is the time that the gateway says it must be given.
func asked(t *testing.T, sentence string) time.Duration {
	t.Helper()
	_, rest, _ := strings.Cut(sentence, "Give the process ")
	word, _, _ := strings.Cut(rest, " ")
	d, err := time.ParseDuration(word)
	if err != nil {
		t.Fatalf("%v: in %q", err, sentence)
	}
	return d
}

// load reads settings as the gateway does.
func load(t *testing.T, r release) *config.Config {
	t.Helper()
	environ := settings(t, r, t.TempDir())
	c, err := config.Load(nil, environ)
	if err != nil {
		t.Fatalf("%s: %v\n%s", r.name, err, strings.Join(environ, "\n"))
	}
	return c
}

// TestExampleOfTheDocs: 20 gateways with 2,500 devices each, as README.md and
// docs/operate/kubernetes.md count it.
func TestExampleOfTheDocs(t *testing.T) {
	r := install(t, "fleet", valuesOf(t, "testdata/good/fleet.yml"))
	d := only[*apps.Deployment](t, r)
	for what, is := range map[string]bool{
		"gateways":        *d.Spec.Replicas == 20,
		"grace period":    *d.Spec.Template.Spec.TerminationGracePeriodSeconds == 106,
		"minReadySeconds": d.Spec.MinReadySeconds == 101,
		"arithmetic in the notes": strings.Contains(r.notes, "+ 75 s to close 3750 connections") &&
			strings.Contains(r.notes, "= 106 s"),
	} {
		if !is {
			t.Errorf("%s: grace %d, minReady %d, notes:\n%s", what, *d.Spec.Template.Spec.TerminationGracePeriodSeconds, d.Spec.MinReadySeconds, r.notes)
		}
	}
	for _, page := range []string{chartDir + "/README.md", root + "/docs/operate/kubernetes.md"} {
		for _, figure := range []string{"106 s", "101 s", "20 × 2,500"} {
			if !strings.Contains(read(t, page), figure) {
				t.Errorf("%s doesn't name %s", page, figure)
			}
		}
	}
}

// TestHowOftenDevicesMove: of n gateways that are replaced one after the other, at
// random. All pages say the same.
func TestHowOftenDevicesMove(t *testing.T) {
	const n = 20
	// more[i] is how often a device still moves that comes to any gateway but the
	// i-th when that one leaves: to the k-th with the same probability.
	var more [n + 1]float64
	for i := n; i >= 1; i-- {
		for k := i + 1; k <= n; k++ {
			more[i] += (1 + more[k]) / (n - 1)
		}
	}
	moves, again := 0.0, 0.0
	for i := 1; i <= n; i++ {
		moves += (1 + more[i]) / n
		again += float64(n-i) / (n - 1) / n
	}
	if math.Abs(moves-1.7) > 0.05 || math.Abs(again-0.5) > 0.01 {
		t.Errorf("at random each device moves %.2f times, and %.2f of them more than once", moves, again)
	}
	for _, page := range []string{"drain", "rollout", "kubernetes"} {
		text := strings.Join(strings.Fields(read(t, root+"/docs/operate/"+page+".md")), " ")
		if !strings.Contains(text, "1.7 times") || !strings.Contains(text, "once") {
			t.Errorf("%s.md doesn't say how often devices move", page)
		}
		if strings.Contains(text, "Half of the devices move more than once, because") {
			t.Errorf("%s.md says of every balancer what is so at random", page)
		}
	}
}

// TestMemory: the collector's bound is four fifths of the container's limit, in
// whatever unit that is written.
func TestMemory(t *testing.T) {
	for limit, want := range map[string]string{
		"1Gi": "819MiB", "512Mi": "409MiB", "1.5Gi": "1228MiB", "1G": "762MiB", "2000M": "1525MiB", "300000k": "228MiB", "1048576Ki": "819MiB", "1Ti": "838860MiB",
	} {
		values := valuesOf(t, "testdata/good/least.yml")
		values["resources"] = map[string]any{"limits": map[string]any{"memory": limit}}
		got := ""
		for _, e := range only[*apps.Deployment](t, install(t, limit, values)).Spec.Template.Spec.Containers[0].Env {
			if e.Name == "GOMEMLIMIT" {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("%s: GOMEMLIMIT is %q, want %q", limit, got, want)
		}
	}
}

// TestAutoscaling: by connections, and slowly down.
func TestAutoscaling(t *testing.T) {
	r := install(t, "full", valuesOf(t, "testdata/good/full.yml"))
	h := only[*autoscaling.HorizontalPodAutoscaler](t, r)
	if only[*apps.Deployment](t, r).Spec.Replicas != nil {
		t.Error("the Deployment sets replicas, and each upgrade would undo what the autoscaler did")
	}
	m := h.Spec.Metrics[0].Pods
	if m.Metric.Name != "sse_active_connections" || m.Target.AverageValue.Value() != 5600 {
		t.Errorf("the target is %s of %s", m.Target.AverageValue, m.Metric.Name)
	}
	down := h.Spec.Behavior.ScaleDown
	if *down.StabilizationWindowSeconds != 1800 || len(down.Policies) != 1 || down.Policies[0].Value != 1 || down.Policies[0].PeriodSeconds < 300 {
		t.Errorf("scale-in: %+v", down)
	}
}
