package client

import (
	"fmt"
	"time"

	"downlink/internal/event"
)

// A Cursor is how far a device has come.
type Cursor struct {
	// ID is the last entry ID that the device has finished with; empty if none.
	ID string
	// Groups is what the gateway called the device's groups; opaque, one line.
	// It lets the gateway notice that they have changed since.
	Groups string
	// Generation is the highest owner's that has dialled the device (Receiver);
	// 0 if none. An owner with a lower one is of the past.
	Generation uint64
}

// A Store keeps a device's cursor. Its methods are called one at a time.
type Store interface {
	// Load returns what Save was given last; a zero Cursor if nothing.
	Load() (Cursor, error)
	// Save returns when the cursor is as safe as the store makes it.
	Save(Cursor) error
}

// A MemoryStore keeps a cursor as long as the process lives. The zero value
// holds none; set Cursor to begin elsewhere. Read it after Run only.
type MemoryStore struct{ Cursor Cursor }

// Load implements Store.
func (s *MemoryStore) Load() (Cursor, error) { return s.Cursor, nil }

// Save implements Store.
func (s *MemoryStore) Save(c Cursor) error {
	s.Cursor = c
	return nil
}

// saveEvery is how often a position is saved that no event stands behind. A
// keep-alive moves it every few seconds, and flash wears out.
const saveEvery = time.Minute

// A keeper is the cursor of one run.
type keeper struct {
	store   Store
	now     Cursor
	saved   Cursor
	savedAt time.Time
	// groups are the connection's. They count with the first frame that is
	// finished: before, a change of groups hasn't been dealt with.
	groups string
}

func newKeeper(store Store) (*keeper, error) {
	if store == nil {
		store = &MemoryStore{}
	}
	c, err := store.Load()
	if err != nil {
		return nil, fmt.Errorf("client: the cursor can't be loaded: %w", err)
	}
	return &keeper{store: store, now: c, saved: c, savedAt: time.Now()}, nil
}

// finished reports whether an entry lies at or before the cursor. Both are of
// one branch of the log: only a resync leads to another, and sets the cursor.
func (k *keeper) finished(id string) bool {
	entry, err := event.ParseID(id)
	if err != nil {
		return false // not a gateway's; nothing is known of its order
	}
	cursor, err := event.ParseID(k.now.ID)
	return err == nil && entry.Compare(cursor) <= 0
}

// commit moves the cursor past something that the device has finished.
func (k *keeper) commit(id string) error {
	k.now.ID, k.now.Groups = id, k.groups
	return k.flush()
}

// move moves the cursor past entries that didn't concern the device.
func (k *keeper) move(id string) error {
	k.now.ID, k.now.Groups = id, k.groups
	if time.Since(k.savedAt) < saveEvery {
		return nil
	}
	return k.flush()
}

// flush saves what isn't saved yet.
func (k *keeper) flush() error {
	if k.now == k.saved {
		return nil
	}
	if err := k.store.Save(k.now); err != nil {
		return fmt.Errorf("client: the cursor can't be saved: %w", err)
	}
	k.saved, k.savedAt = k.now, time.Now()
	return nil
}
