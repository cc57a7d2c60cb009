package testkit

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// LastingAddr is a free loopback address for a server that will be ended and
// started again on it.
func LastingAddr(tb testing.TB) string {
	tb.Helper()
	return loopback(lastingPort(tb))
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// lastingPort is a free port that is the test's until it ends, whether somebody
// listens there or not. It lies below the ports that systems give to outgoing
// connections, any of which could take it meanwhile, be it one to the port itself.
// Other tests, in this process and in others, see by the UDP port of the same
// number that it is taken: the Sentinels of one must not find the server of another
// where theirs has been.
func lastingPort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := 12_000 + rand.IntN(18_000)
		claim, err := net.ListenPacket("udp", loopback(port))
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			_ = claim.Close()
			continue
		}
		_ = listener.Close()
		tb.Cleanup(func() { _ = claim.Close() })
		return port
	}
	tb.Fatal("found no free port in a thousand tries")
	return 0
}
