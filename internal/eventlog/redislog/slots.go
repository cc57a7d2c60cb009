package redislog

import (
	"strconv"
	"strings"
)

// slots of a Redis Cluster.
const slots = 16384

// slotOf is the slot of a key: the CRC-16 (XMODEM) of what stands in its first
// braces, or of all of it.
func slotOf(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slots)
}

// tagsOf are the hash tags of n groups: the tag of group g is the lowest
// number whose slot lies in the middle half of the g-th of n equal parts of all
// slots. So whoever splits the slots evenly among some masters splits the
// groups evenly too. What this returns is part of the log's format.
func tagsOf(n int) []string {
	tags := make([]string, n)
	for missing, i := n, 0; missing > 0; i++ {
		tag := strconv.Itoa(i)
		slot := slotOf(tag)
		g := slot * n / slots
		within := slot*n - g*slots // of slots: how far into the part, from 0
		if tags[g] == "" && within >= slots/4 && within < slots*3/4 {
			tags[g] = tag
			missing--
		}
	}
	return tags
}
