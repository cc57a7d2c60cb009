package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"downlink/internal/testkit"
)

// TestUsersOfThePage: with the users that docs/operate/redis.md tells to make, a
// gateway serves and sweeps, and a producer writes to the log.
func TestUsersOfThePage(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/operate/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "\\\n", " ")
	redis := testkit.StartRedis(t)
	for _, m := range regexp.MustCompile(`(?m)^ACL SETUSER (\S+ on >SECRET .*)$`).FindAllStringSubmatch(text, -1) {
		redis.Do(append([]string{"ACL", "SETUSER"}, strings.Fields(m[1])...)...)
	}
	start := func(more ...string) *testkit.Gateway {
		return program.StartGateway(t, args(append([]string{"--log", "redis://gateway:SECRET@" + redis.Addr()}, more...)...)...)
	}
	g := start()
	s := testkit.Open(t, g.Device+"/events?device=demo", "")
	s.Until(resync)
	publish(t, g, "demo", "by the gateway")
	s.Until("data: by the gateway")

	producer := redis.Dial()
	for _, command := range [][]string{
		{"AUTH", "shop", "SECRET"},
		{"HMGET", "pos-ev:meta", "version", "shards"},
		{"XADD", demoShard, "*", "dev", "demo", "type", "t", "payload", "by a producer"},
	} {
		producer.Send(command...)
		if reply, err := producer.Reply(); err != nil {
			t.Fatalf("%q: %v, %v", command, reply, err)
		}
	}
	if got := s.Until("data: by a producer"); strings.Contains(got, resync) {
		t.Errorf("%q", got)
	}
	mustOrder(t, g, "POST", "demo", "revoke")
	s.Rest()
	sweeper := start("--window", "1s", "--sweep-interval", "200ms") // too short for who reads on a busy machine
	testkit.Eventually(t, "all is swept", func() bool { return redis.Do("XLEN", demoShard) == int64(0) })
	if log := g.Log() + sweeper.Log(); strings.Contains(log, "NOPERM") || strings.Contains(log, "permission") {
		t.Errorf("something was not permitted:\n%s", log)
	}
}
