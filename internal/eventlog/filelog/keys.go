package filelog

import (
	"crypto/sha256"
	"encoding/binary"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// The first byte of a key says what it is. All but metaKey go on with the
// shard (2 bytes); numbers are big-endian, so that bytes sort as IDs do.
const (
	metaPrefix   = 'M' // → meta, JSON
	recordPrefix = 's' // shard → record, JSON
	entryPrefix  = 'e' // shard, ID → entry
	notePrefix   = 'n' // shard, target → highest ID removed
	oncePrefix   = 'i' // shard, hash of scope and key → stored
	expiryPrefix = 'x' // shard, highest ID stored → that hash

	revokedPrefix = 'r' // shard, device → ID of the order and its reason; no device → the list's version
	claimPrefix   = 'c' // shard, hash of a claimed name → when it is free again, ms
	freePrefix    = 'f' // shard, when a claimed name is free again, that hash → nothing
	posPrefix     = 'p' // shard, device → position; no device → the highest generation
)

const (
	shardBytes = 2
	idBytes    = 16
	hashBytes  = sha256.Size
	prefixLen  = 1 + shardBytes
)

var metaKey = []byte{metaPrefix}

func key(prefix byte, shard int, rest ...byte) []byte {
	k := make([]byte, prefixLen, prefixLen+max(len(rest), idBytes))
	k[0] = prefix
	binary.BigEndian.PutUint16(k[1:], uint16(shard))
	return append(k, rest...)
}

func appendID(dst []byte, id event.ID) []byte {
	dst = binary.BigEndian.AppendUint64(dst, id.Ms)
	return binary.BigEndian.AppendUint64(dst, id.Seq)
}

func decodeID(b []byte) event.ID {
	return event.ID{Ms: binary.BigEndian.Uint64(b), Seq: binary.BigEndian.Uint64(b[8:])}
}

// putEntryKey writes an entry's key into room of its size.
func putEntryKey(room []byte, shard int, id event.ID) {
	room[0] = entryPrefix
	binary.BigEndian.PutUint16(room[1:], uint16(shard))
	binary.BigEndian.PutUint64(room[prefixLen:], id.Ms)
	binary.BigEndian.PutUint64(room[prefixLen+8:], id.Seq)
}

func recordKey(shard int) []byte { return key(recordPrefix, shard) }
func entryKey(shard int, id event.ID) []byte {
	k := make([]byte, prefixLen+idBytes)
	putEntryKey(k, shard, id)
	return k
}
func expiryKey(shard int, id event.ID) []byte     { return appendID(key(expiryPrefix, shard), id) }
func noteKey(shard int, target string) []byte     { return key(notePrefix, shard, []byte(target)...) }
func onceKey(shard int, h [hashBytes]byte) []byte { return key(oncePrefix, shard, h[:]...) }

func revokedKey(shard int, device string) []byte   { return key(revokedPrefix, shard, []byte(device)...) }
func claimKey(shard int, h [hashBytes]byte) []byte { return key(claimPrefix, shard, h[:]...) }
func posKey(shard int, device string) []byte       { return key(posPrefix, shard, []byte(device)...) }

func freeKey(shard int, at uint64, h [hashBytes]byte) []byte {
	return append(binary.BigEndian.AppendUint64(key(freePrefix, shard), at), h[:]...)
}

// keyID is the ID at the end of an entry's or an expiry's key.
func keyID(k []byte) event.ID { return decodeID(k[prefixLen:]) }

// endOf is the first key after all of a prefix and shard.
func endOf(prefix byte, shard int) []byte {
	if shard == 1<<16-1 {
		return []byte{prefix + 1}
	}
	return key(prefix, shard+1)
}

// hashOf names an idempotency key. The scope's length goes in too: publisher
// "a" with key "bc" is not publisher "ab" with key "c".
func hashOf(o *eventlog.Once) [hashBytes]byte {
	b := binary.AppendUvarint(nil, uint64(len(o.Scope)))
	return sha256.Sum256(append(append(b, o.Scope...), o.Key...))
}
