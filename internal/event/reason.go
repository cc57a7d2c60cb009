package event

// A Reason says why a device can't be shown to have missed nothing. It is the
// "reason" of a resync frame. The empty Reason means that the cursor is served.
type Reason string

// The reasons of the device contract.
const (
	NoCursor      Reason = "no-cursor"       // first connection
	WindowExpired Reason = "window-expired"  // something for this device has left the window, or nobody can tell
	InvalidCursor Reason = "invalid-cursor"  // not an entry ID
	LogRewound    Reason = "log-rewound"     // the cursor is ahead of the log, or on a branch that is gone
	LogUncertain  Reason = "log-uncertain"   // the log's server changed, and nothing proves that it lost nothing
	GroupsChanged Reason = "groups-changed"  // the device belongs to other groups than when it got its cursor
	EventTooLarge Reason = "event-too-large" // an entry over the limit was written past our API
)

// Reasons lists every reason, for metrics and documentation.
func Reasons() []Reason {
	return []Reason{NoCursor, WindowExpired, InvalidCursor, LogRewound, LogUncertain, GroupsChanged, EventTooLarge}
}
