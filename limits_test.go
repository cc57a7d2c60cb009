package downlink_test

import (
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/limits"
)

// TestEveryLimitIsDocumentedAndMeasured: whoever searches the page for a limit
// finds it, with its default, and every limit has its gauge.
func TestEveryLimitIsDocumentedAndMeasured(t *testing.T) {
	page := read(t, "docs/operate/limits.md")
	registry := limits.New(config.Limits())
	families, err := gateway.Metrics(gateway.Options{Limits: registry}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	gauges := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				gauges[f.GetName()+" "+l.GetValue()] = true
			}
		}
	}
	for _, s := range registry.States() {
		if !strings.Contains(page, "\n### "+s.Name+"\n") || !strings.Contains(page, "\n| ["+s.Name+"](#"+s.Name+") |") {
			t.Errorf("docs/operate/limits.md doesn't document %s; run `make docs`", s.Name)
		}
		if s.Help == "" || s.Reached == "" || s.Unit == "" || s.How == "" {
			t.Errorf("%s doesn't say what it caps, in which unit, what happens at it, or how it is changed: %+v", s.Name, s)
		}
		if !gauges["downlink_limit "+s.Name] || !gauges["downlink_limit_configured "+s.Name] {
			t.Errorf("%s has no gauge", s.Name)
		}
	}
}

// TestLimitsAreDefined: a setting that is a limit says everything, and its
// range is one that PATCH /v1/limits can be held to.
func TestLimitsAreDefined(t *testing.T) {
	for _, d := range config.Limits() {
		inside := d.Least <= d.Default && d.Default <= d.Most || d.Off && d.Default == 0
		if d.Unit == "" || d.Reached == "" || d.Most <= d.Least || !inside || d.Change != limits.Running && d.Change != limits.Restart {
			t.Errorf("%s isn't defined: %+v", d.Name, d)
		}
		if d.Off != (d.Zero != "") {
			t.Errorf("%s: 0 is allowed, and what it means isn't said (zero:), or the other way round", d.Name)
		}
	}
}

// capping is how a constant that caps something is called.
var capping = regexp.MustCompile(`(?i)^(max|most|largest|longest)|(max|most|limit|batch|queued|pending|remembered|budget|bytes|buffer|entries|commands|lines|questions|targets|shards|laps)$|keptback`)

// notLimits are constants that are called so and cap nothing that anybody could
// run into: where, and why.
var notLimits = map[string]string{
	"jwt.minSecretBytes":      "the least, for the sake of security",
	"access.mostTold":         "how many publishers the log tells apart",
	"fdtable.most":            "how far the kernel's table of descriptors is made in advance",
	"filelog.entryBytes":      "what an entry costs in memory",
	"filelog.hashBytes":       "the form of a key",
	"filelog.idBytes":         "the form of a key",
	"filelog.shardBytes":      "the form of a key",
	"filelog.stepBytes":       "a step of the sweep, which the next one follows",
	"filelog.stepEntries":     "a step of the sweep, which the next one follows",
	"frame.keepBuffer":        "what a client's parser keeps for the next event",
	"frame.DefaultMaxBlock":   "what a device's client takes, and a setting of it",
	"frame.maxIDBytes":        "how long an ID can be",
	"frame.most":              "the longest time that the wire's number holds",
	"limits.most":             "cuts a text in an error message",
	"lease.longestName":       "the range of the setting member",
	"plan.maxDevices":         "bounds a sum on paper, far over what makes sense",
	"plan.maxMembers":         "bounds a sum on paper, far over what makes sense",
	"plan.maxShards":          "bounds a sum on paper, far over what makes sense",
	"rebalance.mostSaid":      "more streams than there can be descriptors",
	"egress.most":             "cuts a text in an error message",
	"inventory.maxExamples":   "how many wrong entries the log names",
	"redislog.scanEntries":    "what one command returns, which the next one follows",
	"intake.most":             "cuts a text in an error message",
	"intake.LinesBuffer":      "how much of a batch is read at once",
	"redislog.inspectShards":  "what one script looks at, which the next one follows",
	"redislog.judgeQuestions": "what one script judges, which the next one follows",
	"redislog.judgeTargets":   "what one script judges, which the next one follows",
	"redislog.alongBudget":    "beyond it the tail reads by itself",
	"redislog.leastBudget":    "the least that redis_read_bytes falls to",
	"redislog.sweepBytes":     "a step of the sweep, which the next one follows",
	"redislog.sweepEntries":   "a step of the sweep, which the next one follows",
	"strictjson.most":         "cuts a text in an error message",
	"governor.most":           "likewise",
	"server.keptBuffer":       "what a connection keeps for the next request",
	"server.maxHandOver":      "how often something is tried again that is refused otherwise",
	"shard.encodedBytes":      "what a message costs in memory",
	"shard.entryBytes":        "what a message costs in memory",
	"shard.frameBytes":        "what a message costs in memory",
	"shard.messageBytes":      "what a message costs in memory",
	"shard.topicBytes":        "what a conflation key costs in memory",
	"redislog.mostBehind":     "when a check warns of a replica",
	"redislog.mostCompared":   "with more in a call, all of a shard's are one transaction",
	"redislog.mostEarlier":    "lost connections whose last acknowledged entry is asked for; the watchdog asks each second",
	"redislog.pageEntries":    "what one script returns, which the next one follows",
	"redislog.maxAsked":       "how many servers of a cluster are asked who serves what; the next look asks others",
	"redislog.most":           "cuts a text in an error message",
	"redislog.mostFields":     "how many fields an entry has",
	"problem.retryAfterMost":  "spreads Retry-After",
}

// TestNothingElseCaps: a constant that caps something is in the registry, with
// its value, or says here why it is no limit.
func TestNothingElseCaps(t *testing.T) {
	listed := map[string]int64{}
	for _, s := range limits.New(nil).States() {
		if s.Change == limits.Fixed {
			for source := range strings.FieldsSeq(s.Where) {
				listed[source] = s.Default
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range checkedPackages(t) {
		if !strings.HasPrefix(p.path, module+"/internal/") || strings.HasPrefix(p.path, module+"/internal/load") || strings.HasSuffix(p.path, "test") || strings.HasSuffix(p.path, "/testkit") {
			continue // what the gateway isn't made of
		}
		for id, c := range constants(p) {
			name := p.types.Name() + "." + id.Name
			seen[name] = true
			value, isLimit := listed[name]
			switch n, exact := constant.Int64Val(constant.ToInt(c.Val())); {
			case isLimit && (!exact || n != value):
				t.Errorf("%s is %v, but the registry of limits says %d (internal/limits/fixed.go)", name, c.Val(), value)
			case !isLimit && capping.MatchString(id.Name) && notLimits[name] == "":
				t.Errorf("%s: %s looks like a limit: list it in internal/limits/fixed.go, or make it a setting, or say in notLimits why nobody can run into it", p.fset.Position(id.Pos()), name)
			}
		}
	}
	if runtime.GOOS != "linux" {
		return // where some of them aren't
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !seen[name] {
			t.Errorf("the registry of limits names %s, which isn't there", name)
		}
	}
	for name := range notLimits {
		if !seen[name] {
			t.Errorf("notLimits names %s, which isn't there", name)
		}
	}
}

// constants are a package's numbers that have a name, those inside functions too.
func constants(p checked) map[*ast.Ident]*types.Const {
	found := map[*ast.Ident]*types.Const{}
	for id, obj := range p.info.Defs {
		c, ok := obj.(*types.Const)
		if !ok || c.Val().Kind() != constant.Int {
			continue
		}
		if _, plain := c.Type().(*types.Basic); plain { // times are no limits, and words no numbers
			found[id] = c
		}
	}
	return found
}
