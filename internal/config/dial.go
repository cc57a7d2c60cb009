package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Words of the settings owner, transport and inventory.
const (
	OwnerNone     = "none"
	OwnerStatic   = "static"
	OwnerRing     = "ring"
	Post          = "post"
	WebSocket     = "websocket"
	RedisDevices  = "redis" // inventory: in the log's Redis
	singleReplica = 1
)

var (
	memberForm  = regexp.MustCompile(`^[!-~]{1,128}$`)
	ordinalForm = regexp.MustCompile(`[0-9]{1,4}$`)
)

// MemberName is what a member of a ring is called.
func (c *Config) MemberName() string {
	if c.Member != "" {
		return c.Member
	}
	name, _ := os.Hostname() // without a name Check has complained
	return name
}

// Index is which of the members this one is. The error says what to set.
func (c *Config) Index() (int, error) {
	if c.MemberIndex != "" {
		index, err := strconv.ParseUint(c.MemberIndex, 10, 16)
		if err != nil {
			return 0, errors.New("isn't a number; members are counted from 0")
		}
		return int(index), nil
	}
	name, err := os.Hostname()
	number := ordinalForm.FindString(name)
	if err != nil || number == "" {
		return 0, fmt.Errorf("isn't set, and the host name %q doesn't end with a number; set it", name)
	}
	return strconv.Atoi(number)
}

// InventoryIsURL reports whether the inventory is fetched over HTTP.
func (c *Config) InventoryIsURL() bool {
	return strings.HasPrefix(c.Inventory, "http://") || strings.HasPrefix(c.Inventory, "https://")
}

// checkDial checks what only a dialler has.
func (c *Config) checkDial(add func(name, reason string)) {
	c.checkOwner(add)
	c.checkInventory(add)
	for _, list := range []struct {
		name  string
		items List
	}{{"dial_allow", c.DialAllow}, {"dial_deny", c.DialDeny}} {
		if slices.ContainsFunc(list.items.Items(), notNetwork) {
			add(list.name, "holds something that is neither an address nor a network; write 10.0.0.7, 10.0.0.0/8 or fd00::/8")
		}
	}
	wanted := map[string]string{Post: "http", WebSocket: "ws"}[c.Transport]
	if !slices.ContainsFunc(c.DialSchemes.Items(), func(s string) bool { return s == wanted || s == wanted+"s" }) {
		add("dial_schemes", "has none for transport "+c.Transport+"; add "+wanted+"s, or "+wanted)
	}
	if least := c.ShutdownTimeout + closingTime; c.DrainDeadline < least {
		add("drain_deadline", fmt.Sprintf("leaves no time to close connections: shutdown_timeout (%s) is part of it; choose at least %s",
			formatDuration(c.ShutdownTimeout), formatDuration(least)))
	}
}

func (c *Config) checkOwner(add func(name, reason string)) {
	embedded := strings.HasPrefix(c.Log, "file:")
	switch {
	case c.Owner == OwnerNone && c.Transport == WebSocket:
		add("transport", "can't be websocket with owner none: somebody has to keep each connection open, and nobody owns a device then; choose owner ring or static, or transport post")
	case c.Owner == OwnerRing && embedded:
		add("owner", "ring needs a log on Redis, which holds the leases; set log to a redis URL, or use owner static with members 1")
	case c.Owner == OwnerStatic && embedded && c.Members > 1:
		add("members", "can't share an embedded log, which has one owner; set log to a redis URL, or members to 1")
	}
	if c.Owner == OwnerStatic {
		c.checkStatic(add)
	}
	for _, use := range []struct {
		owner, name string
		set         bool
	}{
		{OwnerStatic, "member_index", c.MemberIndex != ""}, {OwnerStatic, "members", c.Members != 0},
		{OwnerStatic, "replication", c.Replication != singleReplica}, {OwnerRing, "member", c.Member != ""},
	} {
		if use.set && c.Owner != use.owner {
			add(use.name, "has no effect while owner is "+c.Owner+"; set owner to "+use.owner+", or remove it")
		}
	}
	if c.Owner == OwnerRing && !memberForm.MatchString(c.MemberName()) {
		add("member", "isn't a name, and the host has none either; allowed: 1 to 128 printable characters without spaces")
	}
}

func (c *Config) checkStatic(add func(name, reason string)) {
	index, err := c.Index()
	switch {
	case c.Members == 0:
		add("members", "isn't set, and owner static needs to know how many members there are")
	case err != nil:
		add("member_index", err.Error())
	case index >= c.Members:
		add("member_index", fmt.Sprintf("is %d, but members is %d; they are counted from 0", index, c.Members))
	case c.Replication > c.Members:
		add("replication", fmt.Sprintf("is more than members (%d)", c.Members))
	}
}

func (c *Config) checkInventory(add func(name, reason string)) {
	switch {
	case c.Inventory == "":
		add("inventory", "isn't set; name a file, a URL, or redis")
	case c.Inventory == RedisDevices:
		if strings.HasPrefix(c.Log, "file:") {
			add("inventory", "is in the log's Redis, but log isn't on Redis; set log to a redis URL, or name a file or a URL")
		}
	case c.InventoryIsURL():
		if err := inventoryURL(c.Inventory); err != nil {
			add("inventory", err.Error())
		}
	case !slices.Contains([]string{".yaml", ".yml", ".json", ".csv"}, path.Ext(c.Inventory)):
		add("inventory", "is neither redis nor a URL nor a file .yaml, .yml, .json or .csv")
	}
	for name, file := range map[string]string{"inventory_token_file": c.InvToken, "inventory_ca_file": c.InvCA} {
		if file != "" && !c.InventoryIsURL() {
			add(name, "has no effect unless inventory is a URL; remove it")
		}
	}
}

func inventoryURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("isn't a URL with a host")
	case u.User != nil:
		return errors.New("holds a user or password; use inventory_token_file")
	}
	return nil
}

func notNetwork(item string) bool {
	if _, err := netip.ParsePrefix(item); err == nil {
		return false
	}
	_, err := netip.ParseAddr(item)
	return err != nil
}

// dialWarnings are what is allowed of that and yet likely to be regretted.
func (c *Config) dialWarnings() []string {
	var warnings []string
	if items := c.DialSchemes.Items(); slices.Contains(items, "http") || slices.Contains(items, "ws") {
		warnings = append(warnings, "dial_schemes allows http or ws: whoever sees the traffic sees events and devices' credentials")
	}
	if strings.HasPrefix(c.Inventory, "http://") {
		warnings = append(warnings, "inventory is fetched over http: whoever can answer in its place decides where events go")
	}
	if c.Owner == OwnerStatic && c.Replication == singleReplica && c.Members > 1 {
		warnings = append(warnings, "owner static with replication 1: while a member is down, its devices get nothing, and are told to resync if that lasts longer than window")
	}
	return warnings
}
