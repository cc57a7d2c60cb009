package filelog

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// addOnce answers a request whose idempotency key was seen inside the window
// with what it stored then, and stores what isn't there.
func (g *group) addOnce(s *shard, a eventlog.Append) eventlog.Result {
	hash := hashOf(a.Once)
	k := onceKey(s.num, hash)
	ids, err := g.known(s, k, a)
	if err != nil {
		return failed(a, err)
	}
	missing := false
	for _, id := range ids {
		missing = missing || id.IsZero()
	}
	if !missing && len(ids) > 0 {
		return eventlog.Result{IDs: ids, Repeated: true}
	}
	if err := g.fill(s, a.Events, ids); err != nil {
		return failed(a, err)
	}
	if len(ids) == 0 { // nothing stored, nothing to remember
		return eventlog.Result{IDs: ids}
	}
	now := stored{at: g.now, fingerprint: a.Once.Fingerprint, ids: ids}
	g.pending[string(k)] = now
	err = errors.Join(
		g.batch.Set(k, now.encode(), nil),
		g.batch.Set(expiryKey(s.num, s.issued), hash[:], nil),
	)
	if err != nil {
		return failed(a, err)
	}
	return eventlog.Result{IDs: ids}
}

// known gives the IDs of a key's entries that the log still holds, and zero
// IDs for the others.
func (g *group) known(s *shard, k []byte, a eventlog.Append) ([]event.ID, error) {
	ids := make([]event.ID, len(a.Events))
	before, inGroup := g.pending[string(k)]
	if !inGroup {
		found, err := g.lookup(k, &before)
		if err != nil || !found {
			return ids, err
		}
	}
	if before.fingerprint != a.Once.Fingerprint || len(before.ids) != len(ids) {
		return nil, eventlog.ErrConflict
	}
	for i, id := range before.ids {
		held := inGroup
		if !held {
			var err error
			if held, err = g.log.has(entryKey(s.num, id)); err != nil {
				return nil, g.log.unavailable(err)
			}
		}
		if held {
			ids[i] = id
		}
	}
	return ids, nil
}

// lookup reads what a key stands for; a key from before the window stands for
// nothing.
func (g *group) lookup(k []byte, into *stored) (found bool, err error) {
	value, err := g.log.get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		*into, err = decodeStored(value)
	}
	if err != nil {
		return false, g.log.unavailable(err)
	}
	expired := g.now >= into.at && g.now-into.at > millis(g.log.opts.Window)
	return !expired, nil
}
