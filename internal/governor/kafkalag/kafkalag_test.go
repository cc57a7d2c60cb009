package kafkalag

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"downlink/internal/governor"
	"downlink/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a broker with a topic "moves" of three partitions, and somebody who
// uses it.
type rig struct {
	*testing.T
	kafka  *kfake.Cluster
	client *kgo.Client
	admin  *kadm.Client
}

func newRig(t *testing.T, opts ...kfake.Opt) *rig {
	t.Helper()
	kafka, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "moves", "answers")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	return &rig{T: t, kafka: kafka}
}

func (r *rig) use(opts ...kgo.Opt) *rig {
	r.Helper()
	var err error
	r.client, err = kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(r.client.Close)
	r.admin = kadm.NewClient(r.client)
	return r
}

// produce adds n records to a partition.
func (r *rig) produce(topic string, partition int32, n int) {
	r.Helper()
	var records []*kgo.Record
	for range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte("x")})
	}
	if err := r.client.ProduceSync(r.Context(), records...).FirstErr(); err != nil {
		r.Fatal(err)
	}
}

// commit says that a group has handled a partition up to an offset.
func (r *rig) commit(group, topic string, partition int32, at int64) {
	r.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, at, -1)
	if err := r.admin.CommitAllOffsets(r.Context(), group, offsets); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) probe(o Options) *Probe {
	r.Helper()
	if o.Brokers == nil {
		o.Brokers = r.kafka.ListenAddrs()
	}
	p, err := New(o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(p.Close)
	return p
}

// waiting bounds a reading; no speed is judged by it.
const waiting = time.Minute

func (r *rig) read(p *Probe) (governor.Reading, error) {
	ctx, cancel := context.WithTimeout(r.Context(), waiting)
	defer cancel()
	return p.Read(ctx)
}

func (r *rig) want(p *Probe, value float64, of, partial string) {
	r.Helper()
	got, err := r.read(p)
	if err != nil || got.Value != value || got.Of != of || (got.Partial == "") != (partial == "") || !strings.Contains(got.Partial, partial) {
		r.Errorf("read %+v, %v; want %v of %q, partial %q", got, err, value, of, partial)
	}
}

func (r *rig) wantError(p *Probe, text string) {
	r.Helper()
	got, err := r.read(p)
	if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "s3cret") {
		r.Errorf("read %+v, error %v; want one with %q", got, err, text)
	}
}

func TestLag(t *testing.T) {
	r := newRig(t).use()
	p := r.probe(Options{Groups: []string{"scoring", "archive", "scoring"}})
	r.wantError(p, "Kafka knows no such consumer group")
	r.produce("moves", 0, 10)
	r.produce("moves", 1, 20)
	r.commit("scoring", "moves", 0, 4)
	r.commit("scoring", "moves", 1, 20)
	r.want(p, 6, "group scoring", "group archive: Kafka knows no such")
	r.commit("archive", "moves", 1, 1)
	r.want(p, 29, "group archive", "") // it has never committed partition 0
	r.commit("archive", "moves", 0, 10)
	r.want(p, 19, "group archive", "")
	r.produce("answers", 2, 100)
	r.commit("archive", "answers", 2, 0)
	r.want(p, 119, "group archive", "")
	if got, _ := r.read(p); got.Detail != "100 of them in the topic answers" {
		t.Errorf("detail: %q", got.Detail)
	}
	r.commit("archive", "moves", 1, 20)
	r.commit("archive", "answers", 2, 100)
	r.commit("scoring", "moves", 0, 10)
	r.want(p, 0, "group archive", "")
}

// TestConsumerThatHasNotCommitted: it was given partitions, and stands at the
// first record of each.
func TestConsumerThatHasNotCommitted(t *testing.T) {
	r := newRig(t).use()
	r.produce("moves", 0, 7)
	r.produce("moves", 2, 5)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.ConsumerGroup("new"), kgo.ConsumeTopics("moves"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for got := 0; got < 12; {
		got += consumer.PollFetches(t.Context()).NumRecords()
	}
	r.want(r.probe(Options{Groups: []string{"new"}}), 12, "group new", "")
}

// TestNewerProtocol: a group that can't be described is known by its commits.
func TestNewerProtocol(t *testing.T) {
	r := newRig(t).use()
	r.produce("moves", 0, 10)
	r.commit("newer", "moves", 0, 3)
	r.kafka.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.kafka.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, g := range req.(*kmsg.DescribeGroupsRequest).Groups {
			one := kmsg.NewDescribeGroupsResponseGroup()
			one.Group, one.ErrorCode = g, kerr.GroupIDNotFound.Code
			resp.Groups = append(resp.Groups, one)
		}
		return resp, nil, true
	})
	p := r.probe(Options{Groups: []string{"newer"}})
	r.want(p, 7, "group newer", "")
	r.wantError(r.probe(Options{Groups: []string{"misspelt"}}), "Kafka knows no such consumer group")
}

func TestLies(t *testing.T) {
	r := newRig(t).use()
	r.produce("moves", 0, 10)
	r.produce("moves", 1, 10)
	r.commit("scoring", "moves", 0, 1)
	r.commit("scoring", "moves", 1, 11) // beyond the end
	p := r.probe(Options{Groups: []string{"scoring"}})
	r.want(p, 9, "group scoring", "ends at 10, and the group has committed 11")
	r.commit("scoring", "moves", 0, 12)
	r.want(p, 0, "group scoring", "made anew") // the third is empty
	r.commit("scoring", "moves", 0, 1)
	r.commit("scoring", "moves", 1, 1)
	r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Partitions: []int32{1}, Err: kerr.UnknownServerError, Count: -1})
	r.want(p, 9, "group scoring", "partition 1 of moves")
}

func TestAway(t *testing.T) {
	r := newRig(t).use()
	r.produce("moves", 0, 3)
	r.commit("scoring", "moves", 0, 1)
	p := r.probe(Options{Groups: []string{"scoring"}})
	r.want(p, 2, "group scoring", "")
	r.kafka.Close()
	r.wantError(p, "asking Kafka")
	r.wantError(r.probe(Options{Brokers: []string{"127.0.0.1:1"}, Groups: []string{"scoring"}}), "asking Kafka")
}

// TestStalled: a broker that doesn't answer costs the time limit, and no more.
func TestStalled(t *testing.T) {
	r := newRig(t).use()
	proxy := testkit.StartProxy(t, r.kafka.ListenAddrs()[0])
	proxy.Stall()
	p := r.probe(Options{Brokers: []string{proxy.Addr()}, Groups: []string{"scoring"}})
	quickest := time.Duration(math.MaxInt64) // a busy machine may need more, once
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		got, err := p.Read(ctx)
		cancel()
		if err == nil {
			t.Errorf("read %+v", got)
		}
		quickest = min(quickest, time.Since(began))
	}
	if quickest > 3*time.Second {
		t.Errorf("it took %v at least", quickest)
	}
}

func TestSigningIn(t *testing.T) {
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	secure := &tls.Config{RootCAs: trusted}
	for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
		r := newRig(t, kfake.EnableSASL(), kfake.Superuser(string(m), "governor", "s3cret"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
		o := Options{Groups: []string{"scoring"}, TLS: secure, User: "governor", Password: "s3cret", Mechanism: m}
		sasl, err := mechanism(o)
		if err != nil {
			t.Fatal(err)
		}
		r.use(kgo.DialTLSConfig(secure), kgo.SASL(sasl))
		r.produce("moves", 0, 5)
		r.commit("scoring", "moves", 0, 1)
		r.want(r.probe(o), 4, "group scoring", "")
		if m == ScramSHA512 {
			o.Password = "s3cret but wrong"
			r.wantError(r.probe(o), "asking Kafka")
			o.Password, o.TLS = "s3cret", &tls.Config{}
			r.wantError(r.probe(o), "certificate")
		}
	}
}

func TestOptionsAreRefused(t *testing.T) {
	brokers, groups := []string{"127.0.0.1:1"}, []string{"scoring"}
	for want, o := range map[string]Options{
		"no broker":    {Groups: groups},
		"no consumer":  {Brokers: brokers},
		"empty name":   {Brokers: brokers, Groups: []string{"a", ""}},
		"no user":      {Brokers: brokers, Groups: groups, Password: "s3cret"},
		"in the clear": {Brokers: brokers, Groups: groups, User: "u", Password: "s3cret", Mechanism: Plain},
		`"GSSAPI"`:     {Brokers: brokers, Groups: groups, User: "u", Password: "s3cret", Mechanism: "GSSAPI"},
		"host:port":    {Brokers: []string{"127.0.0.1"}, Groups: groups},
		"number 2":     {Brokers: []string{"127.0.0.1:1", "kafka://u:s3cret@127.0.0.1:1"}, Groups: groups},
		"number 1":     {Brokers: []string{"s3cret@127.0.0.1:1"}, Groups: groups},
	} {
		p, err := New(o)
		if err == nil {
			p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
