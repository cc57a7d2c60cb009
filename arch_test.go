package downlink_test

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// A rule says what a package may import, and why not more. Data flows from
// the producer to the device; imports point the other way. Whoever changes a
// line here changes the architecture and says so in docs/architecture.md.
type rule struct {
	may  string // our packages, without "internal/"
	mods string // third-party modules; see also mayMeasure
	why  string
}

const (
	prometheus = "github.com/prometheus/client_golang"
	rueidis    = "github.com/redis/rueidis"
	pebble     = "github.com/cockroachdb/pebble/v2"
	kong       = "github.com/alecthomas/kong"
	gojwt      = "github.com/golang-jwt/jwt/v5"
	yaml       = "github.com/goccy/go-yaml"
	xtime      = "golang.org/x/time"
	xsys       = "golang.org/x/sys"
	xnet       = "golang.org/x/net"
	gocmp      = "github.com/google/go-cmp"
	rapid      = "pgregory.net/rapid"
	goleak     = "go.uber.org/goleak"
	chromedp   = "github.com/chromedp/chromedp"
	cdproto    = "github.com/chromedp/cdproto"
	franz      = "github.com/twmb/franz-go"
	websocket  = "github.com/coder/websocket"
	hdr        = "github.com/HdrHistogram/hdrhistogram-go"
	connect    = "connectrpc.com/connect"
	health     = "connectrpc.com/grpchealth"
	protobuf   = "google.golang.org/protobuf"
)

// unsafeFile has one system call to make that no package makes as it must be
// made: see there.
const unsafeFile = "internal/conn/write_linux.go"

// testMods are the modules that any test may use.
var testMods = strings.Join([]string{gocmp, rapid, websocket, goleak, chromedp, cdproto, prometheus, xnet, yaml, connect, franz}, " ")

var rules = map[string]rule{
	// Words and bytes.
	"event":   {why: "the words of the product know neither a log nor a wire"},
	"frame":   {may: "event", why: "bytes on the wire, for the gateway and for device clients alike"},
	"problem": {why: "an error document says what happened, not who made it happen"},
	"backoff": {why: "arithmetic"},
	"fdtable": {mods: xsys, why: "one question to the system, for a gateway and for the load generator alike"},

	// Texts from outside.
	"strictjson": {why: "what the members mean is others' business"},
	"strictyaml": {mods: yaml, why: "likewise; it is the only one that meets the reader's panics"},

	// The log.
	"eventlog":          {may: "event", why: "the contract knows no store"},
	"eventlog/redisurl": {why: "configuration and log read the same URLs"},
	"eventlog/redislog": {may: "event eventlog eventlog/redisurl backoff", mods: rueidis, why: "the only place that speaks Redis"},
	"eventlog/filelog":  {may: "event eventlog", mods: pebble, why: "the only place that knows the embedded store"},
	"eventlog/logtest":  {may: "event eventlog", mods: gocmp + " " + rapid + " " + goleak, why: "the suite sees a log only through its contract"},

	// The flow, in its order.
	"openapi": {why: "a document"},
	"intake":  {may: "event problem", why: "how requests come in; what is done with them is others' business"},
	"publish": {may: "event eventlog intake problem strictjson", mods: xtime, why: "a producer meets the log, never a session"},
	"control": {may: "event eventlog problem strictjson", why: "orders meet the log, never a session"},
	"revoked": {may: "event eventlog backoff", why: "a copy of what the log says; who is ended for it is not its business"},
	"tail":    {may: "event eventlog backoff", why: "reads positions and pushes into its Dispatcher; what hangs behind it is not its business"},
	"sweep":   {may: "event eventlog backoff", why: "a loop around the log's own sweep"},
	"shard":   {may: "event eventlog frame backoff", mods: xtime, why: "memory and the log behind it; it knows subscribers, not sessions"},
	"session": {may: "event eventlog frame shard", why: "knows where it reads, not what it is written to; of eventlog only the words"},
	"conn":    {mods: xsys, why: "moves bytes to sockets and knows nothing of events"},
	"lease":   {may: "eventlog ring backoff", why: "which shards this gateway may write to; of eventlog only the keeper's words; it knows no connection"},
	"ageing":  {may: "session", why: "dates of sessions; how one ends is their own business"},
	"door":    {may: "event backoff shard", why: "who may pass, and where it begins; of shard only that"},
	"sse":     {may: "frame backoff shard session conn door ageing", why: "joins a session with a connection"},
	"poll":    {may: "event backoff shard session door", why: "joins a session with an answer"},
	"dial":    {may: "event eventlog frame backoff shard session door lease inventory egress post", mods: websocket, why: "joins a session with a device that is dialled; of door only the value of groups, of egress only how an error is told"},

	// The edges: none of them is imported by the flow.
	"limits":  {may: "problem", why: "what caps, not who enforces it: that one gets a function"},
	"config":  {may: "limits cors eventlog/redisurl strictyaml", mods: kong + " " + yaml, why: "packages see plain Options, never the configuration"},
	"metrics": {mods: prometheus, why: "the registry; each package keeps its own metrics"},
	"jwt":     {may: "backoff reload strictjson", mods: gojwt, why: "whether a signed token is to be believed; what it is for is its caller's business"},
	"auth":    {may: "event certs jwt reload strictjson", why: "turns a credential into an identity; it answers nobody"},
	"ticket":  {may: "event problem reload strictjson", why: "what lets a browser in once; who may have one is decided elsewhere"},
	"cors":    {why: "a rule of browsers; it identifies nobody"},
	"access":  {may: "event problem jwt reload strictjson strictyaml", why: "who calls the back end; it serves nothing itself"},
	"certs":   {may: "reload", why: "a certificate that can be exchanged; it knows no listener"},
	"reload":  {why: "a rhythm, and how much is read at most; what is in the files is their owners' business"},
	"explain": {may: "event eventlog session shard trail problem", why: "gathers what others know of a device"},
	"drain":   {may: "backoff session ageing rebalance problem strictjson", why: "when and how fast devices are let go; it knows sessions, not what carries them"},
	"trail":   {why: "remembers what it is told; it knows neither sessions nor doors"},
	"peer":    {why: "addresses and what proxies say of them; it counts nobody"},
	"lobby":   {may: "peer backoff", why: "who is in and who may come in; it knows neither HTTP nor sockets"},
	"server":  {may: "problem lobby peer", mods: xsys + " " + xnet, why: "listeners and their limits; what is served is handed in"},

	// Who reaches out to devices.
	"ring": {why: "a pure function: who should hold which shard"},
	"plan": {may: "event ring", why: "arithmetic; it counts with the gateway's own functions and asks nobody"},

	// The way out.
	"egress":    {may: "reload strictyaml", why: "who may be dialled and what is shown to him; it knows no device"},
	"inventory": {may: "event reload strictyaml", why: "a list of devices; who dials them is its caller's business"},
	"post":      {may: "egress inventory", why: "one event, one device, one request; it chooses neither and repeats nothing"},
	"push":      {may: "event intake problem strictjson egress inventory post", why: "a producer meets a device, and no log"},

	// Beside other gateways.
	"governor":                {why: "a law and its run; what is measured and what is moved are handed in"},
	"governor/probes":         {may: "eventlog eventlog/redislog governor server tail", why: "asks those who know; what follows from an answer is the governor's business"},
	"governor/api":            {may: "governor problem", why: "shows and changes a governor, wherever it runs"},
	"governor/rpc":            {may: "governor governor/rpc/governorv1 governor/usage", mods: connect + " " + health + " " + protobuf, why: "the only place that speaks gRPC"},
	"governor/rpc/governorv1": {mods: connect + " " + protobuf, why: "generated (make proto)"},
	"governor/usage":          {may: "problem strictjson", why: "what programs say of themselves; what follows is the governor's business"},
	"console":                 {why: "a page; what it shows it asks for over HTTP"},
	"governor/kafkalag":       {may: "governor", mods: franz, why: "the only place that speaks Kafka"},
	"governor/settingsfile":   {may: "governor governor/kafkalag reload strictjson strictyaml", mods: yaml, why: "reads settings; what they mean is the governor's business"},
	"rebalance":               {may: "session ageing", why: "how many streams the others hold, and what is done about it; where they tell each other is handed in"},

	// Assembly.
	"gateway": {
		may:  "event frame problem openapi backoff eventlog eventlog/redislog eventlog/filelog publish control revoked tail sweep shard session conn door sse poll trail explain metrics server lobby peer jwt auth certs reload limits fdtable access ticket cors ageing drain rebalance dial lease ring inventory egress post push console governor governor/api governor/rpc governor/usage governor/probes governor/kafkalag governor/settingsfile",
		mods: prometheus,
		why:  "the one place that knows every stage's concrete type; it takes Options too, so that a test can run three in one process",
	},
	"cmd/downlink":    {may: "auth jwt load load/producer load/results load/watch config limits gateway event eventlog problem control publish metrics client explain docs/operate drain plan frame backoff governor governor/api", mods: kong + " " + yaml, why: "reads the command line and wires; work is done elsewhere"},
	"docs/operate":    {why: "text"},
	"bench":           {why: "measures programs from outside: what it shares with them is no measurement"},
	"tools/reference": {may: "config limits gateway governor event eventlog session problem metrics publish", mods: kong + " " + prometheus, why: "writes docs/reference from the code"},

	// The load generator: it meets a gateway over sockets only.
	"load/wire":     {why: "bytes of any server's stream; ours is one of many"},
	"load/template": {why: "text"},
	"load/fleet":    {may: "load/wire", mods: xsys, why: "moves bytes and knows no scenario"},
	"load/producer": {may: "event load/template", why: "of our own words only the shard function, for XADD; Redis is spoken in a hundred lines"},
	"load/ledger":   {why: "accounts know neither time nor connections"},
	"load/watch":    {why: "reads what the system says"},
	"load/results":  {mods: hdr, why: "figures and how they are shown"},
	"load":          {may: "event fdtable load/wire load/template load/fleet load/producer load/ledger load/watch load/results", mods: hdr + " " + xsys, why: "scenarios; nothing of the gateway may come along, or it would measure itself"},

	// An example of an application: what it has of ours, others can have too.
	"examples/hunt/game":    {mods: rueidis + " " + gojwt, why: "an application meets Downlink over HTTP only"},
	"examples/hunt/players": {may: "examples/hunt/game frame", why: "a page's players: they meet game and gateway over HTTP, and read streams with our own parser"},
	"examples/hunt/run":     {may: "examples/hunt/players", mods: yaml, why: "starts programs, and asks them over the network how they are"},
	"examples/hunt":         {may: "examples/hunt/game throttle", mods: kong + " " + prometheus, why: "the command line of the example"},

	// For other programs, and for tests.
	"throttle":            {why: "public: only the standard library may come along; it knows the JSON of a governor, and nothing else of it"},
	"client":              {may: "event frame backoff", mods: websocket, why: "public: none of ours may show in its API, nothing of the gateway may come along"},
	"openapi/openapitest": {may: "openapi", mods: yaml, why: "only tests import it"},
	"testkit":             {may: "event client", mods: websocket, why: "starts real servers for tests; only tests import it"},
}

// TestImports holds every package to its rule.
func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.files) == 0 {
			continue
		}
		r, known := rules[p.name]
		if !known {
			t.Errorf("package %s is not in the table of arch_test.go: say there what it may import, and why", p.name)
			continue
		}
		for _, f := range p.files {
			mods := r.mods
			if mayMeasure(f) {
				mods += " " + prometheus
			}
			checkImports(t, f, strings.Fields(r.may), strings.Fields(mods), r.why)
		}
	}
}

// TestTestImports: tests may use any package of ours, and few modules more
// than what they test.
func TestTestImports(t *testing.T) {
	anyOfOurs := slices.Collect(maps.Keys(rules))
	for _, p := range packages(t) {
		mods := strings.Fields(rules[p.name].mods + " " + testMods)
		for _, f := range p.tests {
			checkImports(t, f, anyOfOurs, mods, "a new module for tests is a decision: add it to testMods")
		}
	}
}

// mayMeasure: metrics live in a package's metrics.go; its other files may name
// the registerer that they are built from, in Options, and nothing else.
func mayMeasure(f file) bool {
	if path.Base(f.path) == "metrics.go" {
		return true
	}
	only := true
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			x, isName := sel.X.(*ast.Ident)
			only = only && (!isName || x.Name != "prometheus" || sel.Sel.Name == "Registerer")
		}
		return true
	})
	return only
}

func checkImports(t *testing.T, f file, may, mods []string, why string) {
	t.Helper()
	for _, spec := range f.ast.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		switch first, _, _ := strings.Cut(imported, "/"); {
		case first == module:
			if !slices.Contains(may, shortName(imported)) {
				t.Errorf("%s imports %s; allowed are %v (%s)", f.path, imported, may, why)
			}
		case strings.Contains(first, "."):
			if !slices.ContainsFunc(mods, func(m string) bool { return within(imported, m) }) {
				t.Errorf("%s imports %s; allowed modules are %v (%s)", f.path, imported, mods, why)
			}
		case imported == "C" || imported == "unsafe" && f.path != unsafeFile && !generated(f.path):
			t.Errorf("%s imports %q: the binary is built without cgo, and only %s needs unsafe", f.path, imported, unsafeFile)
		}
	}
}

// TestRulesAreReasoned: a rule without a reason is a habit.
func TestRulesAreReasoned(t *testing.T) {
	for name, r := range rules {
		if r.why == "" {
			t.Errorf("the rule for %s gives no reason", name)
		}
		for allowed := range strings.FieldsSeq(r.may) {
			if _, known := rules[allowed]; !known {
				t.Errorf("the rule for %s allows %s, which has no rule", name, allowed)
			}
		}
	}
}

// within reports whether an import path is of a module.
func within(imported, mod string) bool {
	return imported == mod || strings.HasPrefix(imported, mod+"/")
}
