package door

import (
	"fmt"
	"net/http"
	"strings"

	"downlink/internal/event"
)

// Open identifies a device by what it says of itself, ?device= and ?group=.
// It is for auth "none" only.
func Open(r *http.Request) (Identity, error) {
	id := Identity{Credential: "none"}
	devices := 0
	eachParameter(r.URL.RawQuery, func(name, value string) {
		// A session keeps them for as long as it lives, and nothing else of the
		// request.
		switch name {
		case "device":
			id.Device = strings.Clone(value)
			devices++
		case "group":
			id.Groups = append(id.Groups, strings.Clone(value))
		}
	})
	if devices != 1 {
		return Identity{}, &RefusedError{http.StatusBadRequest, "name the device once: /events?device=ID"}
	}
	if err := event.ValidateDevice(id.Device); err != nil {
		return Identity{}, fmt.Errorf("?device=: %w", err)
	}
	if len(id.Groups) > maxGroups {
		return Identity{}, &RefusedError{http.StatusBadRequest, fmt.Sprintf("at most %d groups can be named", maxGroups)}
	}
	for _, g := range id.Groups {
		if err := event.ValidateGroup(g); err != nil {
			return Identity{}, fmt.Errorf("?group=: %w", err)
		}
	}
	return id, nil
}

// maxGroups bounds what one request can make a shard index.
const maxGroups = 64
