package dial

import (
	"context"
	"errors"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// askLimit bounds one call about positions.
const askLimit = 5 * time.Second

// positions are what the log keeps for devices. From then on it keeps nothing for
// whoever had the shard before.
func (h *holding) positions(ctx context.Context, devices []string) (map[string]event.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	o := &h.engine.opts
	if err := o.Positions.KeepPositions(ctx, h.shard, h.generation.Load(), nil); err != nil {
		return nil, err
	}
	return o.Positions.Positions(ctx, h.shard, devices)
}

// reached is how far a device has come: what isn't kept yet is newer.
func (h *holding) reached(device string, kept map[string]event.ID) (event.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.reach[device]; ok {
		return at, true
	}
	at, ok := kept[device]
	return at, ok
}

// kept is how far one device has come, as the log knows or soon will; false if it
// was never told.
func (h *holding) kept(ctx context.Context, device string) (event.ID, bool, error) {
	if at, ok := h.reached(device, nil); ok {
		return at, true, nil
	}
	kept, err := h.positions(ctx, []string{device})
	at, ok := kept[device]
	return at, ok, err
}

// note remembers how far a device has come, to be kept soon.
func (h *holding) note(device string, at event.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach[device] = at
}

// keep hands to the log what devices have reached. What it can't take now is tried
// again with the next; a shard that has a newer owner has no use for it.
func (h *holding) keep(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case h.keeping <- struct{}{}:
	}
	defer func() { <-h.keeping }()
	reach := h.takeReach()
	if len(reach) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	err := h.engine.opts.Positions.KeepPositions(ctx, h.shard, h.generation.Load(), reach)
	h.engine.opts.Metrics.kept(err)
	if err == nil || errors.Is(err, eventlog.ErrFenced) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for device, at := range reach {
		if _, newer := h.reach[device]; !newer {
			h.reach[device] = at
		}
	}
}

func (h *holding) takeReach() map[string]event.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	reach := h.reach
	if len(reach) == 0 {
		return nil // not the map itself: others write into it
	}
	h.reach = make(map[string]event.ID)
	return reach
}
