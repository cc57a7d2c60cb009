package redislog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// versionField is the field of a list of revoked devices that is no device: its
// version.
const versionField = ""

// Control stores an order and changes the shard's list, in one script.
func (l *Log) Control(ctx context.Context, shard int, order eventlog.Control) (eventlog.Receipt, error) {
	s, err := l.shard(shard)
	if err == nil {
		err = l.refused()
	}
	if err != nil {
		return eventlog.Receipt{}, err
	}
	e := order.Event()
	args := fields([]string{string(order.Kind), order.Device, order.Reason}, &e)
	reply, err := s.home.run(ctx, storing(callControl), controlScript, []string{s.stream, s.revoked}, args)
	if err != nil {
		return eventlog.Receipt{}, err
	}
	parts, err := arrays(reply, 2)
	if err != nil {
		return eventlog.Receipt{}, err
	}
	changed, err := parts[0].AsInt64()
	if err != nil {
		return eventlog.Receipt{}, oddReply(err)
	}
	text, err := parts[1].ToString()
	if err != nil {
		return eventlog.Receipt{}, oddReply(err)
	}
	if changed == 0 {
		return eventlog.Receipt{ID: readRevocation(order.Device, text).ID}, nil
	}
	id, err := event.ParseID(text)
	if err != nil {
		return eventlog.Receipt{}, oddReply(err)
	}
	return eventlog.Receipt{ID: id, Changed: true}, nil
}

// Revoked reads a shard's list.
func (l *Log) Revoked(ctx context.Context, shard int) (eventlog.Revoked, error) {
	s, err := l.shard(shard)
	if err != nil {
		return eventlog.Revoked{}, err
	}
	reply, err := s.home.do(ctx, callControl, s.home.b().Hgetall().Key(s.revoked).Build())
	if err != nil {
		return eventlog.Revoked{}, err
	}
	found, err := reply.AsStrMap()
	if err != nil {
		return eventlog.Revoked{}, oddReply(err)
	}
	out := eventlog.Revoked{Version: readVersion(found[versionField])}
	delete(found, versionField)
	out.Version.Devices = len(found)
	out.List = make([]eventlog.Revocation, 0, len(found))
	for device, text := range found {
		out.List = append(out.List, readRevocation(device, text))
	}
	return out, nil
}

// RevokedVersions reads the versions of all lists: one round trip for each
// group.
func (l *Log) RevokedVersions(ctx context.Context) ([]eventlog.ListVersion, error) {
	versions := make([]eventlog.ListVersion, len(l.byShard))
	for _, g := range l.groups {
		b := g.home.b()
		cmds := make([]rueidis.Completed, 0, 2*len(g.shards))
		for _, i := range g.shards {
			key := l.byShard[i].revoked
			cmds = append(cmds, b.Hget().Key(key).Field(versionField).Build(), b.Hlen().Key(key).Build())
		}
		replies, err := g.home.doMulti(ctx, callControl, cmds...)
		if err != nil {
			return nil, err
		}
		for at, i := range g.shards {
			if versions[i], err = g.home.node().takeVersion(replies[2*at], replies[2*at+1]); err != nil {
				return nil, err
			}
		}
	}
	return versions, nil
}

func (n *node) takeVersion(version, size rueidis.RedisResult) (eventlog.ListVersion, error) {
	all, err := size.AsInt64()
	if err != nil {
		return eventlog.ListVersion{}, n.translate(err)
	}
	text, err := version.ToString()
	if rueidis.IsRedisNil(err) {
		return eventlog.ListVersion{Devices: int(all)}, nil // never changed by an order
	}
	if err != nil {
		return eventlog.ListVersion{}, n.translate(err)
	}
	v := readVersion(text)
	v.Devices = int(all) - 1 // all but the version itself
	return v, nil
}

// readVersion reads "<ID> <ID> <number>". What somebody else has put there is
// no version, and differs from every one.
func readVersion(text string) eventlog.ListVersion {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return eventlog.ListVersion{}
	}
	born, errBorn := event.ParseID(parts[0])
	last, errLast := event.ParseID(parts[1])
	changes, err := strconv.ParseUint(parts[2], 10, 64)
	if errors.Join(errBorn, errLast, err) != nil {
		return eventlog.ListVersion{}
	}
	return eventlog.ListVersion{Born: born, Last: last, Changes: changes}
}

// readRevocation reads "<ID> <reason>". Whatever else stands there, the device
// is on the list: somebody has put it there by hand.
func readRevocation(device, text string) eventlog.Revocation {
	r := eventlog.Revocation{Device: device}
	id, reason, _ := strings.Cut(text, " ")
	parsed, err := event.ParseID(id)
	if err != nil {
		return r
	}
	r.ID = parsed
	if event.ValidateReason(reason) == nil {
		r.Reason = reason
	}
	return r
}

// Claim gives a name to its first caller, by a key that expires.
func (l *Log) Claim(ctx context.Context, shard int, name string, ttl time.Duration) (bool, error) {
	s, err := l.shard(shard)
	if err == nil {
		err = l.refused()
	}
	if err != nil {
		return false, err
	}
	if ttl < time.Millisecond {
		return false, fmt.Errorf("a claim for %v: it must be 1ms or more", ttl)
	}
	cmd := s.home.b().Set().Key(claimKey(s.stream, name)).Value("1").Nx().Px(ttl).Build()
	replies, err := s.home.through(ctx, storing(callControl), cmd)
	if err != nil {
		return false, err
	}
	err = replies[0].Error()
	if rueidis.IsRedisNil(err) {
		return false, nil // somebody was faster
	}
	return err == nil, s.home.node().translate(err)
}

// claimKey is of a fixed length, whatever the name is, and tells nobody a name
// who can read the log's keys.
func claimKey(stream, name string) string {
	sum := sha256.Sum256([]byte(name))
	return stream + ":once:" + hex.EncodeToString(sum[:16])
}
