package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	root     = "../.."
	chartDir = root + "/deploy/helm/downlink"

	releaseName = "push"
	namespace   = "devices"
)

// theChart is read once; rendering doesn't change it.
var theChart = sync.OnceValues(func() (*chartv2.Chart, error) { return loader.Load(chartDir) })

// valuesOf reads a file of values as the helm command does.
func valuesOf(t *testing.T, file string) map[string]any {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values, err := loader.LoadValues(f)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// render is what "helm template" does: the manifests by template, and the notes.
func render(t *testing.T, values map[string]any) (manifests map[string]string, notes string, err error) {
	t.Helper()
	c, err := theChart()
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: releaseName, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, "", err
	}
	out, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	manifests = make(map[string]string)
	for name, text := range out {
		switch {
		case path.Base(name) == "NOTES.txt":
			notes = text
		case strings.TrimSpace(text) != "":
			manifests[strings.TrimPrefix(name, "downlink/templates/")] = text
		}
	}
	return manifests, notes, nil
}

// A release is the objects of one rendering, decoded strictly.
type release struct {
	name      string
	manifests map[string]string
	notes     string
	objects   []meta.Object
}

// kinds is every kind of object that the chart may make.
func kinds() map[string]func() meta.Object {
	return map[string]func() meta.Object{
		"v1/ConfigMap":                            func() meta.Object { return new(core.ConfigMap) },
		"v1/PersistentVolumeClaim":                func() meta.Object { return new(core.PersistentVolumeClaim) },
		"v1/Pod":                                  func() meta.Object { return new(core.Pod) },
		"v1/Secret":                               func() meta.Object { return new(core.Secret) },
		"v1/Service":                              func() meta.Object { return new(core.Service) },
		"v1/ServiceAccount":                       func() meta.Object { return new(core.ServiceAccount) },
		"apps/v1/Deployment":                      func() meta.Object { return new(apps.Deployment) },
		"autoscaling/v2/HorizontalPodAutoscaler":  func() meta.Object { return new(autoscaling.HorizontalPodAutoscaler) },
		"gateway.networking.k8s.io/v1/HTTPRoute":  func() meta.Object { return new(gateway.HTTPRoute) },
		"monitoring.coreos.com/v1/PrometheusRule": func() meta.Object { return new(monitoring.PrometheusRule) },
		"monitoring.coreos.com/v1/ServiceMonitor": func() meta.Object { return new(monitoring.ServiceMonitor) },
		"networking.k8s.io/v1/Ingress":            func() meta.Object { return new(networking.Ingress) },
		"networking.k8s.io/v1/NetworkPolicy":      func() meta.Object { return new(networking.NetworkPolicy) },
		"policy/v1/PodDisruptionBudget":           func() meta.Object { return new(policy.PodDisruptionBudget) },
	}
}

// install renders values and decodes what comes out.
func install(t *testing.T, name string, values map[string]any) release {
	t.Helper()
	manifests, notes, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	r := release{name: name, manifests: manifests, notes: notes}
	for _, template := range slices.Sorted(maps.Keys(manifests)) {
		documents, err := split(manifests[template])
		if err != nil {
			t.Fatalf("%s: %v", template, err)
		}
		for _, document := range documents {
			o, err := decode(document)
			if err != nil {
				t.Fatalf("%s: %v\n%s", template, err, document)
			}
			r.objects = append(r.objects, o)
		}
	}
	return r
}

// split separates the documents of a manifest, without empty ones.
func split(manifest string) ([][]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	var documents [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) > 0 {
			documents = append(documents, document)
		}
	}
}

// decode takes no unknown and no repeated member, and no value of a wrong type.
func decode(document []byte) (meta.Object, error) {
	var head meta.TypeMeta
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	made, known := kinds()[head.APIVersion+"/"+head.Kind]
	if !known {
		return nil, fmt.Errorf("%s/%s isn't in the list of kinds", head.APIVersion, head.Kind)
	}
	o := made()
	return o, yaml.UnmarshalStrict(document, o)
}

// only is the one object of a type; nil if there is none.
func only[T meta.Object](t *testing.T, r release) (found T) {
	t.Helper()
	count := 0
	for _, o := range r.objects {
		if o, is := o.(T); is {
			found = o
			count++
		}
	}
	if count > 1 {
		t.Fatalf("%s: %d of %T", r.name, count, found)
	}
	return found
}

// all is every object of a type.
func all[T meta.Object](r release) (found []T) {
	for _, o := range r.objects {
		if o, is := o.(T); is {
			found = append(found, o)
		}
	}
	return found
}

// settings are what the gateway of a release is told: the variables of its pod, and
// its files, written to dir, in which the test has put what the Secrets hold.
func settings(t *testing.T, r release, dir string) (environ []string) {
	t.Helper()
	for _, c := range all[*core.ConfigMap](r) {
		for name, place := range map[string]string{"downlink.yml": "config", "governor.yml": "governor"} {
			if text, is := c.Data[name]; is {
				put(t, filepath.Join(dir, place, name), strings.ReplaceAll(text, "/etc/downlink/", dir+"/"))
			}
		}
	}
	known := map[string]string{}
	for _, e := range only[*apps.Deployment](t, r).Spec.Template.Spec.Containers[0].Env {
		switch {
		case e.ValueFrom == nil:
			known[e.Name] = expand(e.Value, known)
		case e.Name == "DOWNLINK_LOG":
			known[e.Name] = "redis://redis:6379"
		default:
			known[e.Name] = "secret"
		}
	}
	for name, value := range known {
		environ = append(environ, name+"="+strings.ReplaceAll(value, "/etc/downlink/", dir+"/"))
	}
	return environ
}

// expand is what Kubernetes does to a variable's value.
func expand(value string, known map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		name, _, closed := strings.Cut(value[min(i+2, len(value)):], ")")
		is, set := known[name]
		switch {
		case strings.HasPrefix(value[i:], "$$"):
			b.WriteByte('$')
			i++
		case strings.HasPrefix(value[i:], "$(") && closed && set:
			b.WriteString(is)
			i += len(name) + 2
		default:
			b.WriteByte(value[i])
		}
	}
	return b.String()
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cases is every file of values that can be installed, by name.
func cases(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("testdata/good/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in testdata/good: %v", err)
	}
	found := make(map[string]map[string]any)
	for _, file := range files {
		found[strings.TrimSuffix(filepath.Base(file), ".yml")] = valuesOf(t, file)
	}
	return found
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
