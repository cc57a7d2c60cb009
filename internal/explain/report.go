package explain

import "time"

// A Report is what one gateway knows of a device. Times are the gateway's.
type Report struct {
	Device   string    `json:"device"`
	Time     time.Time `json:"time"` // of the report
	Gateway  Gateway   `json:"gateway"`
	Shard    int       `json:"shard"`
	Position string    `json:"position,omitempty"` // up to which this gateway has read the shard
	Revoked  bool      `json:"revoked"`
	// Revocation is nil unless the device is revoked.
	Revocation *Revocation `json:"revocation,omitempty"`
	Sessions   []Session   `json:"sessions"` // the latest first
	// Dials says, where devices are dialled, which member this one is due to.
	Dials string `json:"dials,omitempty"`
	// Trail is what happened to the device lately, newest first; Claimed what
	// happened to requests that only said to be the device, and Nameless to those
	// that named none.
	Trail    []Happening `json:"trail"`
	Claimed  []Happening `json:"claimed"`
	Nameless []Happening `json:"nameless"`
}

// A Revocation is what keeps a device out.
type Revocation struct {
	// Since is the log's time, and ID of the entry that the order stands in: the
	// gateway that took the order has it in its log, with whose token it was. Both
	// are missing if it was written past our API.
	Since  *time.Time `json:"since,omitempty"`
	ID     string     `json:"id,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// A Gateway is who reports.
type Gateway struct {
	Name     string `json:"name"`     // the machine's
	Instance string `json:"instance"` // random: no other run has it
	Version  string `json:"version"`
	Address  string `json:"address"`       // of the devices' port, as it is bound
	Ready    bool   `json:"ready"`         // devices are served
	Why      string `json:"why,omitempty"` // not
	// Troubles are what keeps devices away all the same, such as a certificate that
	// has expired.
	Troubles []string `json:"troubles,omitempty"`
}

// A Session is a stream, a poll that waits for its answer, or a device that is
// dialled.
type Session struct {
	Kind         string     `json:"kind"` // "stream", "poll" or "dialled"
	Since        time.Time  `json:"since"`
	Address      string     `json:"address"` // of the connection's other end
	Protocol     string     `json:"protocol"`
	Credential   string     `json:"credential"` // its kind
	Expires      *time.Time `json:"expires,omitempty"`
	Groups       []string   `json:"groups,omitempty"`
	Cursor       string     `json:"cursor,omitempty"` // the last ID that was written to it, or with which it came
	State        string     `json:"state"`            // live, stalled, queued or lapping
	Behind       Behind     `json:"behind"`
	Pending      int        `json:"pending"` // events in memory that wait for the connection
	PendingBytes int        `json:"pending_bytes"`
	// Conflated is how many events it wasn't sent because newer ones of their keys
	// made them needless.
	Conflated uint32 `json:"conflated,omitempty"`
}

// Behind is what a session hasn't been sent yet.
type Behind struct {
	Events int    `json:"events"`
	More   bool   `json:"more,omitempty"` // and whatever is only in the log
	MS     uint64 `json:"ms"`             // the oldest of them before the shard's position, by the log's clock
}

// A Happening is something that happened, once or several times in a row.
type Happening struct {
	What    string     `json:"what"` // "ended", "polled" or "refused"
	Word    string     `json:"word,omitempty"`
	Detail  string     `json:"detail,omitempty"` // what the device was told
	Address string     `json:"address,omitempty"`
	Since   *time.Time `json:"since,omitempty"` // of a stream that ended: when it began
	First   time.Time  `json:"first"`
	Last    time.Time  `json:"last"`
	Times   int        `json:"times"`
}
