package chart

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"

	"downlink/internal/config"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	psa "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden: what a change of the chart changes in a cluster shows in a review.
func TestGolden(t *testing.T) {
	for name, values := range cases(t) {
		r := install(t, name, values)
		var b strings.Builder
		for _, template := range slices.Sorted(maps.Keys(r.manifests)) {
			if template == "dashboard.yaml" || template == "prometheusrule.yaml" {
				continue // whole files, which have their own tests
			}
			b.WriteString("# " + template + "\n" + strings.TrimSpace(r.manifests[template]) + "\n---\n")
		}
		b.WriteString("# NOTES.txt\n" + regexp.MustCompile(`(?m)^`).ReplaceAllString(strings.TrimSpace(r.notes), "# ") + "\n")
		file := filepath.Join("testdata/golden", name+".yml")
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(read(t, file), b.String()); diff != "" {
			t.Errorf("%s (go test -update writes it anew):\n%s", file, diff)
		}
	}
}

// TestLint is "helm lint" with each set of values.
func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range cases(t) {
		for _, m := range lint.RunAll(chartDir, values, namespace).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// TestBadValues: each file says in its first line what the user must be told.
func TestBadValues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in testdata/bad: %v", err)
	}
	for _, file := range files {
		first, _, _ := strings.Cut(read(t, file), "\n")
		want, is := strings.CutPrefix(first, "# ")
		if !is {
			t.Errorf("%s doesn't begin with what is to be said", file)
			continue
		}
		_, _, err := render(t, valuesOf(t, file))
		if err == nil {
			t.Errorf("%s can be installed", file)
			continue
		}
		for part := range strings.SplitSeq(want, " … ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: nothing says %q:\n%v", file, part, err)
			}
		}
	}
}

// TestEveryProblemAtOnce: nobody wants to install five times to learn five things.
func TestEveryProblemAtOnce(t *testing.T) {
	_, _, err := render(t, map[string]any{"limits": map[string]any{"drain_rate": 5}})
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, word := range []string{"image.repository", "there is no log", "config.auth is missing", "config.backend_auth is missing", "drain.reconnectsPerSecond"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is missing in:\n%v", word, err)
		}
	}
}

// TestSettingsAreAccepted by the gateway itself, and every one of them is one.
func TestSettingsAreAccepted(t *testing.T) {
	t.Parallel()
	for name, values := range cases(t) {
		accept(t, install(t, name, values))
	}
}

// accept has the gateway read what a release tells it. A variable that is no setting
// would be passed over with a warning.
func accept(t *testing.T, r release) *config.Config {
	t.Helper()
	dir := t.TempDir()
	files(t, dir)
	environ := settings(t, r, dir)
	c, err := config.Load(nil, environ)
	if err != nil {
		t.Fatalf("%s: %v\n%s", r.name, err, strings.Join(environ, "\n"))
	}
	known := map[string]bool{"DOWNLINK_CONFIG": true, "GOMEMLIMIT": true, "REDIS_PASSWORD": true}
	for _, k := range config.Keys() {
		known[k.Env] = true
	}
	for _, pair := range environ {
		if name, _, _ := strings.Cut(pair, "="); !known[name] {
			t.Errorf("%s: nobody reads %s", r.name, name)
		}
	}
	return c
}

// files are what the Secrets of the test cases hold.
func files(t *testing.T, dir string) {
	t.Helper()
	cert, key := selfSigned(t)
	const publishers = "- name: erp\n  sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n  devices: [\"*\"]\n"
	for name, text := range map[string]string{
		"devices/secret":            strings.Repeat("s", 32) + "\n",
		"publishers/list.yml":       publishers,
		"publishers/publishers.yml": publishers,
		"devices/tokens":            `{"sha256":"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b","device":"till-1"}` + "\n",
		"tls/tls.crt":               cert,
		"tls/tls.key":               key,
		"redis/ca.crt":              cert,
		"kafka-ca/ca.crt":           cert,
		"kafka/password":            "hunter2\n",
	} {
		put(t, filepath.Join(dir, name), text)
	}
}

func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
		"-subj", "/CN=gateway", "-keyout", filepath.Join(dir, "key"), "-out", filepath.Join(dir, "cert"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return read(t, filepath.Join(dir, "cert")), read(t, filepath.Join(dir, "key"))
}

// TestSettingsOfTheChart are settings that there are, and limits that may change
// while a gateway runs are what the chart's page says.
func TestSettingsOfTheChart(t *testing.T) {
	known := make(map[string]bool)
	for _, k := range config.Keys() {
		known[k.Name] = true
	}
	owned := regexp.MustCompile(`(?m)^  "([a-z_]+)" "`).FindAllStringSubmatch(read(t, chartDir+"/templates/_check.tpl"), -1)
	if len(owned) < 8 {
		t.Fatalf("found %d settings of the chart's", len(owned))
	}
	for _, m := range owned {
		if !known[m[1]] {
			t.Errorf("the chart keeps %s for itself, and there is no such setting", m[1])
		}
	}
}

// TestPodsAreRestricted by the Pod Security Standards' strictest profile.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for name, values := range cases(t) {
		r := install(t, name, values)
		d := only[*apps.Deployment](t, r)
		pods := map[string]core.PodTemplateSpec{"gateway": d.Spec.Template}
		for _, p := range all[*core.Pod](r) {
			pods["test"] = core.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
		}
		for which, pod := range pods {
			result := psapolicy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
			if !result.Allowed {
				t.Errorf("%s: %s: %s", name, which, result.ForbiddenDetail())
			}
			for _, c := range pod.Spec.Containers {
				if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
					t.Errorf("%s: %s can write into its image", name, which)
				}
			}
		}
	}
}

// TestObjectsFindEachOther: selectors, ports, mounts and names fit together.
func TestObjectsFindEachOther(t *testing.T) {
	for name, values := range cases(t) {
		r := install(t, name, values)
		d := only[*apps.Deployment](t, r)
		pod := d.Spec.Template
		selects := func(what string, selector labels.Selector) {
			if !selector.Matches(labels.Set(pod.Labels)) {
				t.Errorf("%s: %s doesn't select the gateways", name, what)
			}
			for _, test := range all[*core.Pod](r) {
				if selector.Matches(labels.Set(test.Labels)) {
					t.Errorf("%s: %s selects the pod of helm test", name, what)
				}
			}
		}
		selects("the Deployment", asSelector(t, d.Spec.Selector))
		ports := map[string]bool{}
		for _, p := range pod.Spec.Containers[0].Ports {
			ports[p.Name] = true
		}
		for _, s := range all[*core.Service](r) {
			selects("Service "+s.Name, labels.SelectorFromSet(s.Spec.Selector))
			for _, p := range s.Spec.Ports {
				if !ports[p.TargetPort.StrVal] {
					t.Errorf("%s: Service %s leads to port %q, which there isn't", name, s.Name, p.TargetPort.StrVal)
				}
			}
		}
		volumes := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			volumes[v.Name] = true
			if v.Secret == nil && v.ConfigMap == nil && v.EmptyDir == nil && v.PersistentVolumeClaim == nil {
				t.Errorf("%s: volume %s is nothing", name, v.Name)
			}
		}
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: there is no volume %s", name, m.Name)
			}
		}
		for _, o := range r.objects {
			if o.GetNamespace() != namespace {
				t.Errorf("%s: %s is in namespace %q", name, o.GetName(), o.GetNamespace())
			}
			if strings.Contains(o.GetName(), "--") || len(o.GetName()) > 63 {
				t.Errorf("%s: %s is no good name", name, o.GetName())
			}
		}
	}
}

func asSelector(t *testing.T, s *meta.LabelSelector) labels.Selector {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// TestPasswordsStayInSecrets: a URL with one is nowhere else, not in the notes either.
func TestPasswordsStayInSecrets(t *testing.T) {
	values := valuesOf(t, "testdata/good/least.yml")
	values["redis"] = map[string]any{"url": "redis://user:hunter2@redis:6379"}
	r := install(t, "password", values)
	for template, text := range r.manifests {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows the password", template)
		}
	}
	if strings.Contains(r.notes, "hunter2") {
		t.Error("the notes show the password")
	}
	if got := string(only[*core.Secret](t, r).Data["url"]); got != "redis://user:hunter2@redis:6379" {
		t.Errorf("the Secret holds %q", got)
	}
}

// TestWhatMayChangeMakesNoRollout: a change of limits or of the governor leaves the
// pods as they are, one of config doesn't.
func TestWhatMayChangeMakesNoRollout(t *testing.T) {
	template := func(change func(values map[string]any)) core.PodTemplateSpec {
		values := valuesOf(t, "testdata/good/least.yml")
		change(values)
		return only[*apps.Deployment](t, install(t, "change", values)).Spec.Template
	}
	before := template(func(map[string]any) {})
	for name, values := range map[string]map[string]any{
		"a limit":            {"limits": map[string]any{"accept_rate": 500}},
		"a threshold":        {"governor": map[string]any{"settings": map[string]any{"signals": map[string]any{"redis_memory": map[string]any{"threshold": 0.5}}}}},
		"a consumer group":   {"governor": map[string]any{"kafka": map[string]any{"brokers": []any{"kafka:9092"}, "groups": []any{"orders"}}}},
		"to switch it off":   {"governor": map[string]any{"disabled": ungoverned(t)}},
		"a limit of its own": {"limits": map[string]any{"governor_floor": 20}},
	} {
		if diff := cmp.Diff(before, template(func(v map[string]any) { maps.Copy(v, values) })); diff != "" {
			t.Errorf("%s makes a rollout:\n%s", name, diff)
		}
	}
	if cmp.Equal(before, template(func(v map[string]any) {
		config, _ := v["config"].(map[string]any)
		config["window"] = "30m"
	})) {
		t.Error("a setting makes no rollout, and so counts for new pods alone")
	}
}

// TestEveryValueIsUsed: a value that nothing looks at would be a promise that is
// not kept.
func TestEveryValueIsUsed(t *testing.T) {
	var templates strings.Builder
	for _, pattern := range []string{"*.yaml", "*.tpl", "*.txt", "tests/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(chartDir, "templates", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			templates.WriteString(read(t, file))
		}
	}
	var walk func(prefix string, values map[string]any)
	walk = func(prefix string, values map[string]any) {
		for key, value := range values {
			name := prefix + "." + key
			inner, is := value.(map[string]any)
			used := regexp.MustCompile(regexp.QuoteMeta(".Values"+name) + `\b`).MatchString(templates.String())
			switch {
			case is && len(inner) > 0 && name != ".resources" && !strings.HasSuffix(name, "abels"):
				walk(name, inner)
			case !used && name != ".config" && name != ".limits":
				t.Errorf("no template uses %s", strings.TrimPrefix(name, "."))
			}
		}
	}
	walk("", valuesOf(t, chartDir+"/values.yaml"))
}

// examples are the blocks of the chart's page that are whole files of values.
func examples(t *testing.T) []release {
	t.Helper()
	var found []release
	for _, m := range regexp.MustCompile("(?s)```yaml\n(image:.*?)```").FindAllStringSubmatch(read(t, chartDir+"/README.md"), -1) {
		file := filepath.Join(t.TempDir(), "values.yaml")
		put(t, file, m[1])
		found = append(found, install(t, fmt.Sprintf("example %d of the page", len(found)+1), valuesOf(t, file)))
	}
	return found
}

// TestExamplesOfTheChartsPage: who copies one can install it, and it is what it is
// said to be.
func TestExamplesOfTheChartsPage(t *testing.T) {
	all := examples(t)
	if len(all) != 4 {
		t.Fatalf("there are %d examples", len(all))
	}
	told := make([]*config.Config, len(all))
	for i, r := range all {
		told[i] = accept(t, r)
	}
	first := only[*apps.Deployment](t, all[0]).Spec.Template.Spec
	for _, v := range first.Volumes {
		if v.Secret != nil && !strings.Contains(read(t, chartDir+"/README.md"), " secret generic "+v.Secret.SecretName+" ") {
			t.Errorf("the page makes no Secret %s", v.Secret.SecretName)
		}
	}
	if first.Containers[0].Lifecycle == nil {
		t.Error("the first example has no preStop")
	}
	if d := only[*apps.Deployment](t, all[1]).Spec; *d.Replicas != 20 || *d.Template.Spec.TerminationGracePeriodSeconds != 106 ||
		told[1].Log != "redis+sentinel://gateway:secret@sentinel-0:26379,sentinel-1:26379,sentinel-2:26379/main" {
		t.Errorf("the fleet: %+v, %s", d, told[1].Log)
	}
	if told[2].Log != "rediss+cluster://gateway:secret@redis.example.com:6379" || len(told[2].RedisCAFile) == 0 || only[*gateway.HTTPRoute](t, all[2]) == nil {
		t.Errorf("the one behind an ALB has its log at %s", told[2].Log)
	}
	if grace := *only[*apps.Deployment](t, all[2]).Spec.Template.Spec.TerminationGracePeriodSeconds; !strings.Contains(read(t, chartDir+"/README.md"),
		fmt.Sprintf("{key: deregistration_delay.timeout_seconds, value: \"%d\"}", grace)) {
		t.Errorf("the page has another deregistration delay than %d s", grace)
	}
	if d := only[*apps.Deployment](t, all[3]).Spec; d.Strategy.Type != apps.RecreateDeploymentStrategyType || only[*core.PersistentVolumeClaim](t, all[3]) == nil ||
		told[3].Log != "file:/var/lib/downlink/log" || told[3].DrainWait != 0 {
		t.Errorf("the shop: %+v, %s", d, told[3].Log)
	}
}

// TestPodsKeepTheirSettings: what an upgrade changes comes with new pods alone. What
// pods share, and would find when they start again, holds nothing but limits.
func TestPodsKeepTheirSettings(t *testing.T) {
	shared := func(change func(values map[string]any)) map[string]string {
		values := valuesOf(t, "testdata/good/full.yml")
		change(values)
		found := map[string]string{}
		for _, c := range all[*core.ConfigMap](install(t, "shared", values)) {
			if _, is := c.Labels["grafana_dashboard"]; !is {
				maps.Copy(found, c.Data)
			}
		}
		return found
	}
	before := shared(func(map[string]any) {})
	if diff := cmp.Diff(before, shared(func(v map[string]any) {
		v["connectionsPerGateway"] = 77
		config, _ := v["config"].(map[string]any)
		config["window"] = "no duration"
	})); diff != "" {
		t.Errorf("pods that are there would read new settings when they start again:\n%s", diff)
	}
	if strings.Contains(before["downlink.yml"], "\nwindow:") || !strings.Contains(before["downlink.yml"], "accept_rate: \"1000\"") {
		t.Errorf("the file is\n%s", before["downlink.yml"])
	}
}

// TestValuesAreNotExpanded by Kubernetes, which would take $(…) for a variable.
func TestValuesAreNotExpanded(t *testing.T) {
	values := valuesOf(t, "testdata/good/least.yml")
	config, _ := values["config"].(map[string]any)
	config["prefix"] = "a$(GOMEMLIMIT)$$b"
	values["redis"] = map[string]any{"url": "redis://a$b:$(REDIS_PASSWORD)@redis", "passwordSecret": map[string]any{"name": "p"}}
	environ := settings(t, install(t, "expanded", values), t.TempDir())
	for _, want := range []string{"DOWNLINK_PREFIX=a$(GOMEMLIMIT)$$b", "DOWNLINK_LOG=redis://a$b:secret@redis"} {
		if !slices.Contains(environ, want) {
			t.Errorf("no %s in %q", want, environ)
		}
	}
}

// TestIdleTime: what is in front lets a stream miss three keep-alives, and a poll wait.
func TestIdleTime(t *testing.T) {
	for keepalive, want := range map[string]string{"": "75", "20s": "75", "1s": "75", "500ms": "75", "25s": "90", "1m30s": "285", "10m": "1815"} {
		values := valuesOf(t, "testdata/good/full.yml")
		ingress, _ := values["ingress"].(map[string]any)
		delete(ingress, "annotations")
		config, _ := values["config"].(map[string]any)
		if keepalive != "" {
			config["keepalive"] = keepalive
		}
		annotations := only[*networking.Ingress](t, install(t, keepalive, values)).Annotations
		if annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"] != want || annotations["nginx.org/proxy-read-timeout"] != want+"s" {
			t.Errorf("keepalive %s: %v", keepalive, annotations)
		}
	}
}
