package filelog

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// addOnce answers a request whose idempotency key was seen inside the window
// with what it stored then, and stores what isn't there.
func (g *group) addOnce(s *shard, a *eventlog.Append, r *eventlog.Result) {
	hash := hashOf(a.Once)
	k := onceKey(s.num, hash)
	if err := g.known(s, k, a, r.IDs); err != nil {
		fail(r, err)
		return
	}
	missing := slices.ContainsFunc(r.IDs, event.ID.IsZero)
	if r.Repeated = !missing && len(r.IDs) > 0; r.Repeated {
		return
	}
	if err := g.fill(s, a.Events, r.IDs); err != nil {
		fail(r, err)
		return
	}
	if len(r.IDs) == 0 { // nothing stored, nothing to remember
		return
	}
	now := stored{at: g.now, fingerprint: a.Once.Fingerprint, ids: r.IDs}
	if g.pending == nil {
		g.pending = make(map[string]stored)
	}
	g.pending[string(k)] = now
	err := errors.Join(
		g.batch.Set(k, now.encode(), nil),
		g.batch.Set(expiryKey(s.num, s.issued), hash[:], nil),
	)
	if err != nil {
		fail(r, err)
	}
}

// known fills in the IDs of a key's entries that the log still holds.
func (g *group) known(s *shard, k []byte, a *eventlog.Append, ids []event.ID) error {
	before, inGroup := g.pending[string(k)]
	if !inGroup {
		found, err := g.lookup(k, &before)
		if err != nil || !found {
			return err
		}
	}
	if before.fingerprint != a.Once.Fingerprint || len(before.ids) != len(ids) {
		return eventlog.ErrConflict
	}
	for i, id := range before.ids {
		held := inGroup
		if !held {
			var err error
			if held, err = g.log.has(entryKey(s.num, id)); err != nil {
				return g.log.unavailable(err)
			}
		}
		if held {
			ids[i] = id
		}
	}
	return nil
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
