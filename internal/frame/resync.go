package frame

import (
	"encoding/json"
	"math"
	"time"

	"downlink/internal/event"
)

// A Resync is what the data of a resync frame says.
type Resync struct {
	Reason event.Reason
	After  time.Duration // wait so long before fetching; 0 to 24 h
}

// maxAfter bounds the wait, so that no frame puts a device to sleep for good.
const maxAfter = 24 * time.Hour

// ParseResync reads the data of a resync frame. It never fails: a resync that
// can't be read in full is still one, and ignoring it would skip in silence.
// What is missing or of another kind is left empty.
func ParseResync(data string) Resync {
	var members map[string]any
	_ = json.Unmarshal([]byte(data), &members)
	var r Resync
	if reason, ok := members["reason"].(string); ok {
		r.Reason = event.Reason(reason)
	}
	if ms, ok := members["after_ms"].(float64); ok {
		r.After = time.Duration(math.Max(0, math.Min(ms, float64(maxAfter.Milliseconds())))) * time.Millisecond
	}
	return r
}
