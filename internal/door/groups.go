package door

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
)

// GroupsHeader carries an opaque value that stands for the device's groups. A
// client sends back what it got with its cursor: if the groups have changed
// since, events of the new ones lie before the cursor, unseen.
const GroupsHeader = "Downlink-Groups"

// noGroups is the value of a device without groups, as nearly all are.
const noGroups = "47DEQpj8HBSa-_TI"

// GroupsValue is the value that stands for these groups, in any order.
func GroupsValue(groups []string) string {
	if len(groups) == 0 {
		return noGroups
	}
	return digest(groups)
}

func digest(groups []string) string {
	sorted := slices.Clone(groups)
	slices.Sort(sorted)
	sum := sha256.New()
	for _, g := range slices.Compact(sorted) {
		sum.Write([]byte(g))
		sum.Write([]byte{0}) // a group's name has no control characters
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
}
