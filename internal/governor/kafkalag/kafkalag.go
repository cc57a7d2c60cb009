// Package kafkalag owns one question to Kafka: how far consumer groups are
// behind. It reads and commits nothing there. Its invariant: a group that Kafka
// doesn't know, or a partition of which it doesn't tell, is said to be unknown,
// and never to be no lag.
package kafkalag

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"downlink/internal/governor"
)

// Name is the signal's.
const Name = "kafka_lag"

// A Mechanism is how a user and a password are shown (SASL).
type Mechanism string

// The mechanisms.
const (
	Plain       Mechanism = "PLAIN" // the password itself: only over TLS
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// Options for a Probe.
type Options struct {
	Brokers   []string    // host:port; one is enough to find the others
	Groups    []string    // the consumer groups that are asked about
	TLS       *tls.Config // nil: in the clear
	User      string      // empty: nobody signs in
	Password  string
	Mechanism Mechanism // if there is a user
}

func (o Options) check() error {
	wrong := slices.IndexFunc(o.Brokers, noAddress)
	switch {
	case len(o.Brokers) == 0:
		return errors.New("no broker of Kafka is named")
	case wrong >= 0: // not repeated: a URL would hold a password
		return fmt.Errorf("a broker of Kafka is written host:port, and number %d isn't", wrong+1)
	case len(o.Groups) == 0:
		return errors.New("no consumer group is named whose lag is to be watched")
	case slices.Contains(o.Groups, ""):
		return errors.New("a consumer group has an empty name")
	case o.User == "" && (o.Password != "" || o.Mechanism != ""):
		return errors.New("there is a password or a mechanism for Kafka, and no user")
	case o.User != "" && o.Mechanism == Plain && o.TLS == nil:
		return errors.New("PLAIN would send the password of Kafka in the clear: use TLS, or SCRAM-SHA-512")
	}
	return nil
}

func noAddress(broker string) bool {
	host, port, err := net.SplitHostPort(broker)
	return err != nil || host == "" || port == "" || strings.ContainsAny(host, "@/")
}

// A Probe asks Kafka. Close it when it isn't read any more.
type Probe struct {
	// Set at construction.
	groups  []string
	options []kgo.Opt

	mu     sync.Mutex
	admin  *kadm.Client // nil: it wasn't read yet
	closed bool
}

// New makes a probe. It connects, and needs Close, when it is first read.
func New(o Options) (*Probe, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...), kgo.ClientID("downlink"), kgo.DisableClientMetrics(),
		// Who reads asks again in a moment; what it waits for has a time limit.
		kgo.RequestRetries(1), kgo.DialTimeout(Timeout), kgo.RetryTimeout(Timeout), kgo.RequestTimeoutOverhead(Timeout),
		kgo.MetadataMinAge(time.Second),
	}
	if o.TLS != nil {
		options = append(options, kgo.DialTLSConfig(o.TLS))
	}
	if o.User != "" {
		m, err := mechanism(o)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(m))
	}
	if err := kgo.ValidateOpts(options...); err != nil {
		return nil, fmt.Errorf("Kafka can't be asked with these settings: %w", err)
	}
	return &Probe{groups: slices.Compact(slices.Sorted(slices.Values(o.Groups))), options: options}, nil
}

var errClosed = errors.New("Kafka isn't asked any more")

// client is made when it is needed: it has goroutines from the beginning, and who
// only checks settings would have to end them.
func (p *Probe) client() (*kadm.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if p.admin == nil {
		client, err := kgo.NewClient(p.options...)
		if err != nil {
			return nil, err
		}
		p.admin = kadm.NewClient(client)
	}
	return p.admin, nil
}

func mechanism(o Options) (sasl.Mechanism, error) {
	switch o.Mechanism {
	case Plain:
		return plain.Auth{User: o.User, Pass: o.Password}.AsMechanism(), nil
	case ScramSHA256:
		return scram.Auth{User: o.User, Pass: o.Password}.AsSha256Mechanism(), nil
	case ScramSHA512:
		return scram.Auth{User: o.User, Pass: o.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("Kafka's mechanism is %q: choose %s, %s or %s", o.Mechanism, ScramSHA512, ScramSHA256, Plain)
}

// Close ends the connections.
func (p *Probe) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed = true; p.admin != nil {
		p.admin.Close()
	}
}

// Timeout of one reading.
const Timeout = 4 * time.Second

// Read asks how far the group is behind that is furthest behind, as a
// governor.Probe does.
func (p *Probe) Read(ctx context.Context) (governor.Reading, error) {
	admin, err := p.client()
	if err != nil {
		return governor.Reading{}, err
	}
	lags, err := admin.Lag(ctx, p.groups...)
	if err != nil {
		return governor.Reading{}, fmt.Errorf("asking Kafka: %w", err)
	}
	if lags, err = p.describeOthers(ctx, admin, lags); err != nil {
		return governor.Reading{}, fmt.Errorf("asking Kafka: %w", err)
	}
	worst := governor.Reading{Value: -1}
	var missing []string
	for _, name := range p.groups {
		lag, topic, err := sum(lags[name])
		if err != nil {
			missing = append(missing, fmt.Sprintf("group %s: %v", name, err))
		}
		if lag > worst.Value {
			worst = governor.Reading{Value: lag, Of: "group " + name, Detail: topic}
		}
	}
	if worst.Of == "" {
		return governor.Reading{}, errors.New(strings.Join(missing, "; "))
	}
	worst.Partial = strings.Join(missing, "; ")
	return worst, nil
}

// describeOthers asks for the commits of groups that can't be described because
// they follow the newer protocol (KIP-848): what they have committed tells their
// lag as well.
func (p *Probe) describeOthers(ctx context.Context, admin *kadm.Client, lags kadm.DescribedGroupLags) (kadm.DescribedGroupLags, error) {
	for _, name := range p.groups {
		if l, ok := lags[name]; ok && !errors.Is(l.DescribeErr, kerr.GroupIDNotFound) {
			continue
		}
		commits, err := admin.FetchOffsets(ctx, name)
		if err != nil {
			lags[name] = kadm.DescribedGroupLag{Group: name, FetchErr: err}
			continue
		}
		var topics []string
		for topic := range commits {
			topics = append(topics, topic)
		}
		lag := kadm.GroupLag{}
		if len(topics) > 0 {
			starts, err := admin.ListStartOffsets(ctx, topics...)
			if err != nil {
				return nil, err
			}
			ends, err := admin.ListEndOffsets(ctx, topics...)
			if err != nil {
				return nil, err
			}
			lag = kadm.CalculateGroupLagWithStartOffsets(kadm.DescribedGroup{Group: name}, commits, starts, ends)
		}
		lags[name] = kadm.DescribedGroupLag{Group: name, Lag: lag}
	}
	return lags, nil
}

var errUnknown = errors.New("Kafka knows no such consumer group, or it has neither committed nor been given anything yet")

// sum is the lag of a group over the partitions of its topics, and which topic has
// most of it. What it has never committed counts from the first record that is
// there. It is -1 if nothing is known; else, with an error, it is a lower bound.
func sum(g kadm.DescribedGroupLag) (lag float64, detail string, err error) {
	switch err := g.Error(); {
	case errors.Is(err, kerr.GroupIDNotFound):
		return -1, "", errUnknown
	case err != nil:
		return -1, "", err
	}
	byTopic := make(map[string]int64)
	known := 0
	var failed error
	for _, p := range g.Lag.Sorted() {
		switch {
		case p.Err != nil:
			failed = fmt.Errorf("partition %d of %s: %w", p.Partition, p.Topic, p.Err)
		case p.Commit.At < 0 && p.Start.Err != nil:
			failed = fmt.Errorf("where partition %d of %s begins: %w", p.Partition, p.Topic, p.Start.Err)
		case p.End.Offset < 0 || p.Lag < 0:
			failed = fmt.Errorf("partition %d of %s ends at %d, which can't be", p.Partition, p.Topic, p.End.Offset)
		case p.Commit.At > p.End.Offset:
			failed = fmt.Errorf("partition %d of %s ends at %d, and the group has committed %d: the topic was made anew, or has lost records",
				p.Partition, p.Topic, p.End.Offset, p.Commit.At)
		default:
			known++
			lag += float64(p.Lag)
			byTopic[p.Topic] += p.Lag
		}
	}
	switch {
	case known == 0 && failed != nil:
		return -1, "", failed
	case known == 0:
		return -1, "", errUnknown
	}
	return lag, largest(byTopic), failed
}

func largest(byTopic map[string]int64) string {
	topic := ""
	for t, lag := range byTopic {
		if topic == "" || lag > byTopic[topic] || lag == byTopic[topic] && t < topic {
			topic = t
		}
	}
	return fmt.Sprintf("%d of them in the topic %s", byTopic[topic], topic)
}
