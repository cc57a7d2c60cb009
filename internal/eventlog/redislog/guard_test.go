package redislog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

func TestGuard(t *testing.T) {
	r := newRig(t, nil)
	guard := r.redis.Do("HGETALL", "pos-ev:meta").([]any)
	if len(guard) != 6 {
		t.Fatalf("the guard is %v", guard)
	}
	other := r.opts
	other.Shards = 8
	_, err := Open(t.Context(), other)
	var mismatch *eventlog.MismatchError
	if !errors.As(err, &mismatch) || mismatch.Setting != "shards" || mismatch.Stored != "4" || mismatch.Configured != "8" {
		t.Errorf("Open with another shard count: %v", err)
	}
	for field, value := range map[string]string{"version": "99", "groups": "16", "shards": ""} {
		r.redis.Do("HSET", "pos-ev:meta", field, value)
		if _, err := Open(t.Context(), r.opts); !errors.As(err, &mismatch) {
			t.Errorf("Open with %s %q in the guard: %v", field, value, err)
		}
		r.redis.Do("DEL", "pos-ev:meta")
	}
	other.Prefix = "another"
	open(t, other) // its own log, its own guard
}

// A flush takes the guard away too; it is written again, and if somebody with
// other settings was faster, this log stops instead of losing events.
func TestGuardComesBack(t *testing.T) {
	r := newRig(t, nil)
	expire := func() { r.guards[0].asserted.Store(time.Now().Add(-2 * assertEvery).UnixNano()) }
	r.redis.Do("FLUSHALL")
	expire()
	r.sweep(nil)
	if got := r.redis.Do("HGET", "pos-ev:meta", "shards"); got != "4" {
		t.Fatalf("after a flush and a sweep the guard says %v", got)
	}
	r.redis.Do("HSET", "pos-ev:meta", "shards", "8")
	expire()
	var mismatch *eventlog.MismatchError
	if _, err := r.Inspect(t.Context(), 0, make([]event.ID, 4)); !errors.As(err, &mismatch) {
		t.Errorf("Inspect: %v", err)
	}
	if _, err := r.Sweep(t.Context(), 0, nil); !errors.As(err, &mismatch) {
		t.Errorf("Sweep: %v", err)
	}
	if res := r.try(t.Context(), "a", nil); !errors.As(res.Err, &mismatch) {
		t.Errorf("Append: %v", res.Err)
	}
}

func TestEvictingServersAreRefused(t *testing.T) {
	server := testkit.StartRedis(t, testkit.RedisConfig("maxmemory-policy allkeys-lru"))
	opts := testOptions(t, server)
	_, err := Open(t.Context(), opts)
	if err == nil || !strings.Contains(err.Error(), "allkeys-lru") || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("Open: %v", err)
	}
	var logged bytes.Buffer
	opts.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	opts.AllowEviction = true
	open(t, opts)
	if !strings.Contains(logged.String(), "WARN") {
		t.Errorf("allowing eviction is logged as %q", logged.String())
	}
}

func TestServerAway(t *testing.T) {
	server := testkit.StartRedis(t)
	opts := testOptions(t, server)
	server.Kill9()
	if _, err := Open(t.Context(), opts); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Open: %v", err)
	}
}

func TestCluster(t *testing.T) {
	server := testkit.StartRedis(t, testkit.RedisConfig("cluster-enabled yes"))
	if _, err := Open(t.Context(), testOptions(t, server)); err == nil || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("Open: %v", err)
	}
}

// leastRules are the permissions that a gateway needs of one server.
const leastRules = "~pos-ev:* -@all +hello +ping +select +info +time +exists +unlink " +
	"+xadd +xread +xrange +xtrim +xdel +xinfo|stream +multi +exec " +
	"+hset +hget +hgetall +hlen +hmget +hscan +hdel +get +set +eval +evalsha +script|load"

// TestUsersPage: the page for operators says what is tested here.
func TestUsersPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operate/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\\\n", " ")), " ")
	for _, rules := range []string{leastRules, producerRules} {
		if !strings.Contains(text, "resetkeys resetchannels "+rules) {
			t.Errorf("docs/operate/redis.md doesn't say %q", rules)
		}
	}
	for more := range strings.FieldsSeq(strings.TrimPrefix(everywhereRules, leastRules)) {
		if !strings.Contains(text, "`"+more+"`") {
			t.Errorf("docs/operate/redis.md doesn't say %q", more)
		}
	}
}

// producerRules are those of a producer that writes to the log itself.
const producerRules = "-@all +hello +ping +hmget +xadd +wait " +
	"%R~pos-ev:meta %W~pos-ev:[0-9] %W~pos-ev:[0-9][0-9]"

// TestProducer: a producer may append, and learn how the log is laid out; it
// can neither read events nor touch what belongs to the gateways.
func TestProducer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for where, c := range map[string]struct{ rules, stream string }{
		"alone":   {producerRules, "pos-ev:17"},
		"cluster": {strings.ReplaceAll(producerRules, "ev:[", "ev:{*}:["), "pos-ev:{3}:17"},
	} {
		r.redis.Do(append([]string{"ACL", "SETUSER", where, "on", ">s3cret", "resetkeys", "resetchannels"}, strings.Fields(c.rules)...)...)
		as := r.redis.Dial()
		say := func(args ...string) error {
			as.Send(args...)
			_, err := as.Reply()
			return err
		}
		xadd := func(key string) []string { return []string{"XADD", key, "*", "dev", "a", "type", "t", "payload", "p"} }
		for _, may := range [][]string{
			{"AUTH", where, "s3cret"}, {"HMGET", "pos-ev:meta", "version", "shards"}, xadd(c.stream), {"WAIT", "0", "1"},
		} {
			if err := say(may...); err != nil {
				t.Errorf("%s: %q: %v", where, may, err)
			}
		}
		for _, not := range [][]string{
			xadd(c.stream + ":gone"), xadd(c.stream + ":revoked"), xadd("pos-ev:meta"), xadd("other:0"),
			{"XRANGE", c.stream, "-", "+"}, {"XREAD", "STREAMS", c.stream, "0"}, {"XTRIM", c.stream, "MAXLEN", "0"}, {"XDEL", c.stream, "1-1"},
			{"DEL", c.stream}, {"HSET", "pos-ev:meta", "shards", "8"}, {"HMGET", c.stream + ":sweep", "since"},
			{"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"PUBLISH", "channel", "message"},
		} {
			if err := say(not...); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("%s: %q is answered %v", where, not, err)
			}
		}
	}
}

// TestLeastUserOverTLS does everything as a user who may do nothing else.
func TestLeastUserOverTLS(t *testing.T) {
	r := newRig(t, shortWindow, testkit.RedisTLS(), testkit.RedisUser("gateway", "s3cret", leastRules))
	id := r.app("a")
	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	if res := r.try(t.Context(), "a", once); res.Err != nil {
		t.Errorf("idempotent Append: %v", res.Err)
	}
	if _, err := r.Read(t.Context(), 0, make([]event.ID, 4)); err != nil {
		t.Errorf("Read: %v", err)
	}
	r.redis.Do("XDEL", stream0, id.String())
	r.want("removed", id, "a", event.WindowExpired)
	r.app("b")
	if _, err := r.Suspect(t.Context(), 0, r.app("b").Next()); err != nil {
		t.Errorf("Suspect: %v", err)
	}
	r.sweepTo(r.app("a"))
	r.redis.Do("HSET", record0, "prune", r.state().Swept.String())
	r.sweep(nil)
	r.redis.Do("DEL", stream0)
	r.state()
	for _, kind := range eventlog.ControlKinds() {
		if _, err := r.Control(t.Context(), 0, eventlog.Control{Kind: kind, Device: "a"}); err != nil {
			t.Errorf("Control %s: %v", kind, err)
		}
	}
	if _, err := r.Revoked(t.Context(), 0); err != nil {
		t.Errorf("Revoked: %v", err)
	}
	if _, err := r.RevokedVersions(t.Context()); err != nil {
		t.Errorf("RevokedVersions: %v", err)
	}
	if _, err := r.Claim(t.Context(), 0, "a", time.Minute); err != nil {
		t.Errorf("Claim: %v", err)
	}
}

// everywhereRules are what the other forms of a Redis ask for besides.
const everywhereRules = leastRules + " +wait +readonly +asking +cluster|slots +cluster|info +cluster|nodes +cluster|myid"

// TestLeastUserEverywhere does the same on every topology, over TLS, with
// replicas that are waited for and read. The Sentinels know no such user.
func TestLeastUserEverywhere(t *testing.T) {
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	server := []testkit.RedisOption{testkit.RedisTLSFrom(dir), testkit.RedisUser("gateway", "s3cret", everywhereRules)}
	for name, start := range map[string]func(*testing.T) string{
		"sentinel": func(t *testing.T) string { return testkit.StartPair(t, server...).URL() },
		"cluster":  func(t *testing.T) string { return testkit.StartCluster(t, 3, 1, server...).URL() },
		"list": func(t *testing.T) string {
			return testkit.StartRedis(t, server...).URL() + "," + testkit.StartRedis(t, server...).URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := optionsAt(t, start(t))
			opts.TLS.CA = filepath.Join(dir, "ca.pem")
			opts.Window, opts.SweepStep = 20*time.Millisecond, 2*time.Millisecond
			if name != "list" {
				opts.Replicas, opts.ReadReplica, opts.replicaWait = 1, true, opts.CallTimeout
			}
			l := open(t, opts)
			for shard := range l.Shards() {
				everyCall(t, l, shard)
			}
			for group, shards := range l.Groups() {
				if _, err := l.Inspect(t.Context(), group, make([]event.ID, len(shards))); err != nil {
					t.Errorf("Inspect: %v", err)
				}
				testkit.Eventually(t, "it is read", func() bool {
					_, err := l.Read(t.Context(), group, make([]event.ID, len(shards)))
					return err == nil && l.groups[group].tail.last.replica() == opts.ReadReplica
				})
			}
		})
	}
}

func everyCall(t *testing.T, l *Log, shard int) {
	t.Helper()
	check := func(call string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	e := []event.Event{{Target: "a", Type: "t", Payload: "p"}}
	var last event.ID
	for _, o := range []*eventlog.Once{nil, once, once} {
		res := l.Append(t.Context(), []eventlog.Append{{Shard: shard, Events: e, Once: o}})[0]
		check("Append", res.Err)
		last = res.IDs[0]
	}
	_, _, err := l.Judge(t.Context(), shard, []eventlog.Question{{Cursor: last, Targets: []string{"a"}}})
	check("Judge", err)
	_, err = l.Range(t.Context(), shard, event.ID{}, last, 1000)
	check("Range", err)
	_, err = l.Control(t.Context(), shard, eventlog.Control{Kind: eventlog.Revoke, Device: "a"})
	check("Control", err)
	_, err = l.Revoked(t.Context(), shard)
	check("Revoked", err)
	_, err = l.RevokedVersions(t.Context())
	check("RevokedVersions", err)
	_, err = l.Claim(t.Context(), shard, "a", time.Minute)
	check("Claim", err)
	testkit.Eventually(t, "it is swept", func() bool {
		report, err := l.Sweep(t.Context(), shard, nil)
		check("Sweep", err)
		return report.Removed > 0 || err != nil
	})
	_, err = l.Suspect(t.Context(), shard, last.Next())
	check("Suspect", err)
}

func TestSecretsStayOut(t *testing.T) {
	server := testkit.StartRedis(t, testkit.RedisTLS(), testkit.RedisUser("gateway", "s3cret", leastRules))
	host, port := server.HostPort()
	for _, url := range []string{
		"redis://gateway:wr0ng-s3cret@" + host + ":" + port,
		"rediss://gateway:wr0ng-s3cret@" + strings.TrimPrefix(server.URL(), "rediss://gateway:s3cret@"),
		"redis://gateway:wr0ng-s3cret@127.0.0.1:1",
		"redis://gateway:wr0ng-s3cret%@host",
		"redis://gateway:wr0ng-s3cret@ho st",
		"http://gateway:wr0ng-s3cret@host",
		"redis://gateway:wr0ng-s3cret@host/x",
		"redis://gateway:wr0ng-s3cret@host/0?x=y",
		"rediss://gateway:wr0ng-s3cret@host/0?x=y",
	} {
		_, err := Open(t.Context(), withURL(testOptions(t, server), url))
		if err == nil {
			t.Errorf("%s was accepted", url)
		} else if strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the password is in the error %q", err)
		}
	}
}

// A server whose certificate nobody vouches for is not talked to.
func TestUnknownAuthority(t *testing.T) {
	server := testkit.StartRedis(t, testkit.RedisTLS())
	opts := testOptions(t, server)
	open(t, opts)
	opts.TLS = TLSFiles{}
	if _, err := Open(t.Context(), opts); err == nil {
		t.Error("Open without the authority's certificate succeeded")
	}
}

func TestOptions(t *testing.T) {
	good := Options{URL: "redis://h", Logger: slog.Default(), Metrics: &Metrics{}}
	for name, change := range map[string]func(*Options){
		"shards":   func(o *Options) { o.Shards = -1 },
		"window":   func(o *Options) { o.Window = -1 },
		"block":    func(o *Options) { o.BlockTime = time.Microsecond },
		"failover": func(o *Options) { o.Failover = "perhaps" },
		"logger":   func(o *Options) { o.Logger = nil },
		"metrics":  func(o *Options) { o.Metrics = nil },
		"url":      func(o *Options) { o.URL = "" },
	} {
		o := good
		change(&o)
		if _, err := Open(context.Background(), o); err == nil || errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := good
	if err := o.fill(); err != nil || o.Prefix != "pos-ev" || o.Shards != 64 || o.Window != 15*time.Minute || o.Failover != Cautious {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}
