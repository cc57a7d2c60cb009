package redislog

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/rueidis"
)

//go:embed lua/look.lua
var lookSource string

//go:embed lua/judge.lua
var judgeSource string

//go:embed lua/inspect.lua
var inspectSource string

//go:embed lua/suspect.lua
var suspectSource string

//go:embed lua/due.lua
var dueSource string

//go:embed lua/remove.lua
var removeSource string

//go:embed lua/prune.lua
var pruneSource string

//go:embed lua/append.lua
var appendSource string

//go:embed lua/control.lua
var controlSource string

//go:embed lua/positions.lua
var positionsSource string

//go:embed lua/meta.lua
var metaSource string

//go:embed lua/page.lua
var pageSource string

// A script is a Lua script as the server knows it.
type script struct {
	source string
	sha    string
}

// The record scripts run at maxmemory too: sweeping is what frees memory.
// Appending is what fills it, so its script has no such flag.
var (
	judgeScript   = newScript("#!lua flags=allow-oom\n", lookSource, judgeSource)
	inspectScript = newScript("#!lua flags=allow-oom\n", lookSource, inspectSource)
	suspectScript = newScript("#!lua flags=allow-oom\n", lookSource, suspectSource)
	dueScript     = newScript("#!lua flags=allow-oom\n", lookSource, dueSource)
	removeScript  = newScript("#!lua flags=allow-oom\n", lookSource, removeSource)
	pruneScript   = newScript("#!lua flags=allow-oom\n", lookSource, pruneSource)
	metaScript    = newScript("#!lua flags=allow-oom\n", metaSource)
	appendScript  = newScript("#!lua\n", appendSource)
	// An order is small, and a device must be kept out exactly then, too.
	controlScript = newScript("#!lua flags=allow-oom\n", controlSource)
	// Positions are few and replace each other; without them events repeat.
	positionsScript = newScript("#!lua flags=allow-oom\n", positionsSource)
	// A replica runs it too.
	pageScript = newScript("#!lua flags=no-writes\n", pageSource)
)

func newScript(parts ...string) script {
	source := strings.Join(parts, "")
	sum := sha1.Sum([]byte(source)) // the name by which Redis caches it, no secret
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

func (s script) bySHA(b rueidis.Builder, keys, args []string) rueidis.Completed {
	return b.Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// load only makes the server know the script.
func (s script) load(b rueidis.Builder) rueidis.Completed {
	return b.ScriptLoad().Script(s.source).Build()
}

func (s script) whole(b rueidis.Builder, keys, args []string) rueidis.Completed {
	return b.Eval().Script(s.source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func noScript(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && reply.IsNoScript()
}

// evalRecord runs a record script: all of them are told the failover mode.
func (l *Log) evalRecord(ctx context.Context, h *home, call callName, s script, keys, args []string) (rueidis.RedisMessage, error) {
	return h.eval(ctx, call, s, keys, append([]string{string(l.opts.Failover)}, args...))
}
