package inventory

import (
	"context"
	"hash/maphash"
)

// A Table is a source whose devices stand one by one in a store, such as a hash
// in Redis: under the device's ID a JSON object with url, and any of groups and
// credential.
type Table struct {
	name  string
	fetch func(ctx context.Context) (map[string]string, error)
	seed  maphash.Seed
	used  uint64 // of the rows that count
	any   bool   // some do
}

// NewTable is a source that asks fetch for all rows. name is what it is called
// in logs.
func NewTable(name string, fetch func(ctx context.Context) (map[string]string, error)) *Table {
	return &Table{name: name, fetch: fetch, seed: maphash.MakeSeed()}
}

// Name is what the table is called.
func (t *Table) Name() string { return t.name }

// Fetch asks for the rows.
func (t *Table) Fetch(ctx context.Context) (*List, error) {
	rows, err := t.fetch(ctx)
	if err != nil {
		return nil, err
	}
	sum := t.sum(rows)
	if t.any && sum == t.used {
		return nil, nil
	}
	entries := make([]Entry, 0, len(rows))
	for id, object := range rows {
		var r row
		err := decodeJSON([]byte(object), &r)
		entries = append(entries, Entry{Device: r.device(id), Err: err})
	}
	return &List{Entries: entries, Used: func() { t.used, t.any = sum, true }}, nil
}

// sum is the same for the same rows, in whatever order they come: most readings
// find nothing new, and need no parsing.
func (t *Table) sum(rows map[string]string) uint64 {
	var sum uint64
	for id, object := range rows {
		var h maphash.Hash
		h.SetSeed(t.seed)
		_, _ = h.WriteString(id)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(object)
		sum += h.Sum64()
	}
	return sum + uint64(len(rows))
}
