package filelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Control stores an order and changes the shard's list with one sync. It needs
// no room that must stay free: an order is small, and a device must be kept out
// when the disk is full, too.
func (l *Log) Control(ctx context.Context, shard int, order eventlog.Control) (eventlog.Receipt, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.Receipt{}, err
	}
	if err := l.enter(); err != nil {
		return eventlog.Receipt{}, err
	}
	defer l.leave()
	done := make(chan eventlog.Receipt, 1)
	err = l.do(ctx, func() error {
		receipt, err := l.control(ctx, s, order)
		done <- receipt
		return err
	})
	if err != nil {
		return eventlog.Receipt{}, err
	}
	return <-done, nil
}

// control runs on the writer.
func (l *Log) control(ctx context.Context, s *shard, order eventlog.Control) (eventlog.Receipt, error) {
	if ctx.Err() != nil {
		return eventlog.Receipt{}, late(ctx) // its caller was told that nothing is claimed
	}
	k := revokedKey(s.num, order.Device)
	known, err := l.get(k)
	listed := err == nil
	switch {
	case err != nil && !errors.Is(err, pebble.ErrNotFound):
		return eventlog.Receipt{}, l.unavailable(err)
	case order.Kind == eventlog.Revoke && listed:
		r, err := decodeRevocation(order.Device, known)
		if err != nil {
			return eventlog.Receipt{}, l.unavailable(err)
		}
		return eventlog.Receipt{ID: r.ID}, nil
	case order.Kind == eventlog.Restore && !listed:
		return eventlog.Receipt{}, nil
	}
	g := l.newGroup()
	defer g.batch.Close()
	ids := make([]event.ID, 1)
	if err := g.fill(s, []event.Event{order.Event()}, ids); err != nil {
		g.forget()
		return eventlog.Receipt{}, err
	}
	if order.Kind != eventlog.Disconnect {
		if err := g.list(s, order, ids[0]); err != nil {
			g.forget()
			return eventlog.Receipt{}, l.unavailable(err)
		}
	}
	if err := g.commit(); err != nil {
		return eventlog.Receipt{}, err
	}
	return eventlog.Receipt{ID: ids[0], Changed: true}, nil
}

// list puts an order's change of the shard's list into the group.
func (g *group) list(s *shard, order eventlog.Control, id event.ID) error {
	k := revokedKey(s.num, order.Device)
	version, err := g.log.listVersion(s.num)
	if err != nil {
		return err
	}
	if version.Changes == 0 {
		version.Born = id
	}
	version.Last = id
	version.Changes++
	if order.Kind == eventlog.Revoke {
		version.Devices++
		err = g.batch.Set(k, append(appendID(nil, id), order.Reason...), nil)
	} else {
		version.Devices--
		err = g.batch.Delete(k, nil)
	}
	return errors.Join(err, g.batch.Set(revokedKey(s.num, ""), encodeVersion(version), nil))
}

// Revoked reads a shard's list.
func (l *Log) Revoked(ctx context.Context, shard int) (eventlog.Revoked, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.Revoked{}, err
	}
	if err := l.enter(); err != nil {
		return eventlog.Revoked{}, err
	}
	defer l.leave()
	if ctx.Err() != nil {
		return eventlog.Revoked{}, late(ctx)
	}
	list, err := l.readList(s.num)
	if err != nil {
		return eventlog.Revoked{}, l.unavailable(err)
	}
	return list, nil
}

func (l *Log) readList(num int) (out eventlog.Revoked, err error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: key(revokedPrefix, num), UpperBound: endOf(revokedPrefix, num)})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return out, err
		}
		device := string(it.Key()[prefixLen:])
		if device == "" {
			out.Version, err = decodeVersion(value)
		} else {
			var r eventlog.Revocation
			r, err = decodeRevocation(device, value)
			out.List = append(out.List, r)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// RevokedVersions reads the versions of all lists.
func (l *Log) RevokedVersions(ctx context.Context) ([]eventlog.ListVersion, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	if ctx.Err() != nil {
		return nil, late(ctx)
	}
	versions := make([]eventlog.ListVersion, len(l.shards))
	for i := range versions {
		var err error
		if versions[i], err = l.listVersion(i); err != nil {
			return nil, l.unavailable(err)
		}
	}
	return versions, nil
}

func (l *Log) listVersion(num int) (eventlog.ListVersion, error) {
	value, err := l.get(revokedKey(num, ""))
	if errors.Is(err, pebble.ErrNotFound) {
		return eventlog.ListVersion{}, nil
	}
	if err != nil {
		return eventlog.ListVersion{}, err
	}
	return decodeVersion(value)
}

func encodeVersion(v eventlog.ListVersion) []byte {
	b := appendID(appendID(nil, v.Born), v.Last)
	return binary.AppendUvarint(binary.AppendUvarint(b, v.Changes), uint64(v.Devices))
}

func decodeVersion(b []byte) (v eventlog.ListVersion, err error) {
	corrupt := fmt.Errorf("%w: version of a list of revoked devices", errCorrupt)
	if len(b) < 2*idBytes {
		return v, corrupt
	}
	v.Born, v.Last = decodeID(b), decodeID(b[idBytes:])
	changes, n := binary.Uvarint(b[2*idBytes:])
	if n <= 0 {
		return v, corrupt
	}
	devices, m := binary.Uvarint(b[2*idBytes+n:])
	if m <= 0 || 2*idBytes+n+m != len(b) {
		return v, corrupt
	}
	v.Changes, v.Devices = changes, int(devices)
	return v, nil
}

func decodeRevocation(device string, b []byte) (eventlog.Revocation, error) {
	if len(b) < idBytes {
		return eventlog.Revocation{}, fmt.Errorf("%w: revoked device", errCorrupt)
	}
	return eventlog.Revocation{Device: device, ID: decodeID(b), Reason: string(b[idBytes:])}, nil
}
