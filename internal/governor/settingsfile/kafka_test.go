package settingsfile

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"downlink/internal/governor"
	"downlink/internal/testkit"
)

// lags makes a broker with groups whose lags are known.
func lags(t *testing.T, o []kgo.Opt, groups map[string]int64, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	kafka, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "moves")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	client, err := kgo.NewClient(append(o, kgo.SeedBrokers(kafka.ListenAddrs()...))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 20 {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "moves", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for group, lag := range groups {
		var offsets kadm.Offsets
		offsets.AddOffset("moves", 0, 20-lag, -1)
		if err := kadm.NewClient(client).CommitAllOffsets(t.Context(), group, offsets); err != nil {
			t.Fatal(err)
		}
	}
	return kafka
}

func (r *rig) lag() (governor.Reading, error) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	return r.opts.Kafka.Read(ctx)
}

func (r *rig) wantLag(value float64, of string) {
	r.Helper()
	if got, err := r.lag(); err != nil || got.Value != value || got.Of != of {
		r.Errorf("%+v, %v; want %v of %q", got, err, value, of)
	}
}

// The groups are asked about from the moment on at which the file names them, and
// until it doesn't.
func TestKafka(t *testing.T) {
	kafka := lags(t, nil, map[string]int64{"scoring": 7, "archive": 3})
	r := start(t, "{}\n")
	if got, err := r.lag(); err != nil || got.None == "" {
		t.Errorf("%+v, %v", got, err)
	}
	named := "step: 0.2\nkafka:\n  brokers: [" + kafka.ListenAddrs()[0] + "]\n  groups: "
	write(t, r.path, named+"[scoring]\n")
	r.load(true, "")
	r.wantLag(7, "group scoring")
	before := r.kafka
	write(t, r.path, strings.Replace(named, "0.2", "0.3", 1)+"[scoring]\n")
	r.load(true, "")
	if r.kafka != before {
		t.Error("the probe was exchanged, and nothing has changed of Kafka")
	}
	write(t, r.path, named+"[archive]\n")
	r.load(true, "")
	r.wantLag(3, "group archive")
	for text, wrong := range map[string]string{
		"[]":                                    "no consumer group",
		"[a]\n  password: s3cret":               "kafka.password_file",
		"[a]\n  user: u":                        "kafka.password_file",
		"[a]\n  user: u\n  password_file: /no":  "kafka.password_file: open /no",
		"[a]\n  tls: {ca_file: /no}":            "kafka.tls.ca_file: open /no",
		"[a]\n  tls: {cert_file: /no}":          "belong together",
		"[a]\n  tls: {ca: /no}":                 "kafka.tls.ca isn't known",
		"[a]\n  tls: yes":                       "kafka.tls must hold settings",
		"[a]\n  topics: [moves]":                "kafka.topics isn't known",
		"[1, 2]\n  brokers: x":                  "line",
		"scoring":                               "kafka.groups has the wrong type",
		"[a]\n  mechanism: PLAIN":               "no user",
		"[a]\nsignals:\n  kafka_lag: {wall: 1}": "signals.kafka_lag.wall can't be 1",
	} {
		write(t, r.path, named+text+"\n")
		r.load(false, wrong)
	}
	r.wantLag(3, "group archive")
	write(t, r.path, "{}\n")
	r.load(true, "")
	if got, err := r.lag(); err != nil || got.None == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A password and certificates stand in files of their own, and count when those
// change.
func TestKafkaThatWantsToKnowWhoAsks(t *testing.T) {
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	pair, err := tls.LoadX509KeyPair(at("server.pem"), at("server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	sasl := kgo.SASL(scram.Auth{User: "governor", Pass: "s3cret"}.AsSha512Mechanism())
	client := kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the rig's own
	kafka := lags(t, []kgo.Opt{sasl, client}, map[string]int64{"scoring": 7},
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "governor", "s3cret"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	write(t, at("password"), "s3cret but wrong\n")
	r := start(t, "kafka:\n  brokers: ["+kafka.ListenAddrs()[0]+"]\n  groups: [scoring]\n  user: governor\n  password_file: "+at("password")+"\n  tls: {ca_file: "+at("ca.pem")+"}\n")
	if got, err := r.lag(); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%+v, %v", got, err)
	}
	write(t, at("password"), "s3cret\n")
	r.load(true, "")
	r.wantLag(7, "group scoring")
	r.load(false, "")
	write(t, at("password"), "\n")
	r.load(false, "kafka.password_file: "+at("password")+" is empty")
	r.wantLag(7, "group scoring")
	if strings.Contains(r.log.String(), "s3cret") {
		t.Error(r.log.String())
	}
}
