package session

import (
	"time"

	"downlink/internal/shard"
)

// An EndReason is why a session ended: the same word in metric, log and
// documentation.
type EndReason string

// The reasons.
const (
	ClientGone   EndReason = "client_gone"      // the client closed, half-closed or vanished
	WriteTimeout EndReason = "write_timeout"    // the client took nothing for write_timeout
	Unexpected   EndReason = "unexpected_bytes" // the client sent more than its request
	Lifetime     EndReason = "lifetime"         // the connection reached its maximum age
	Expired      EndReason = "expired"          // the device's credential expired
	Disconnected EndReason = "disconnected"     // an operator ended the device's streams
	Revoked      EndReason = "revoked"          // an operator shut the device out
	Withdrawn    EndReason = "withdrawn"        // the device's credential was withdrawn
	Draining     EndReason = "draining"         // the gateway goes out of service
	Isolated     EndReason = "isolated"         // the gateway has been without its log for isolation_after
	Rebalanced   EndReason = "rebalanced"       // the gateway held far more streams than the others
	Shed         EndReason = "shed"             // the governor holds fewer streams than there were
	Failed       EndReason = "failed"           // the transport can't stream
)

// EndReasons lists every reason, for metrics and documentation.
func EndReasons() []EndReason {
	return []EndReason{ClientGone, WriteTimeout, Unexpected, Lifetime, Expired, Withdrawn, Disconnected, Revoked, Draining, Isolated, Rebalanced, Shed, Failed}
}

// end is why a session ended, and when its device is to come back: 0 leaves that
// to Options.Goodbye.
type end struct {
	reason EndReason
	retry  time.Duration
}

// EndDevice ends all sessions of a device, which lives in that shard, and says
// how many there were. retry is when the device is to come back, asked for each
// session; nil or 0 leaves that to Options.Goodbye.
func EndDevice(in *shard.Shard, device string, reason EndReason, retry func() time.Duration) (n int) {
	for _, sub := range in.Subscribers(device) {
		s, ok := sub.(*Session)
		if !ok {
			continue
		}
		after := time.Duration(0)
		if retry != nil {
			after = retry()
		}
		s.EndWith(reason, after)
		n++
	}
	return n
}
