package session

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
	Draining     EndReason = "draining"         // the gateway goes out of service
	Failed       EndReason = "failed"           // the transport can't stream
)

// EndReasons lists every reason, for metrics and documentation.
func EndReasons() []EndReason {
	return []EndReason{ClientGone, WriteTimeout, Unexpected, Lifetime, Expired, Draining, Failed}
}
