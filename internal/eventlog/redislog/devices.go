package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redisurl"
)

// Devices reads the hash <prefix>:devices, in which others keep under a device's
// ID how it can be reached. It needs no log: a dialler without one reads it too.
// Fetch isn't called concurrently.
type Devices struct {
	opts    Options
	key     string
	way     target
	locator locator // nil: the server stays where it is
	node    *node   // that was asked last; nil at first
}

const (
	// scanEntries is how many devices one command asks for: a server is kept for
	// well under a millisecond.
	scanEntries = 500
	// maxDevicesBytes is room for some hundred thousand devices; a hash that is
	// something else isn't read into memory.
	maxDevicesBytes = 64 << 20
	// fetchTime bounds a reading.
	fetchTime = 30 * time.Second
)

// OpenDevices makes a reader, which connects when it is first used. Of the
// options URL, TLS, Prefix, CallTimeout, Logger and Metrics count. In a list of
// servers the hash is at the first one.
func OpenDevices(opts Options) (*Devices, error) {
	if err := opts.fill(); err != nil {
		return nil, err
	}
	p, err := parsePlace(opts.URL, opts.TLS)
	if err != nil {
		return nil, err
	}
	d := &Devices{opts: opts, key: opts.Prefix + ":devices", way: p.servers[0]}
	switch p.form {
	case redisurl.Sentinel:
		d.locator = newSentinels(p, &d.opts)
	case redisurl.Cluster:
		d.locator = newMembers(p, &d.opts)
	}
	return d, nil
}

// Key is the hash's name.
func (d *Devices) Key() string { return d.key }

// Close ends the connections.
func (d *Devices) Close() {
	if d.locator != nil {
		d.locator.close()
	}
	if d.node != nil {
		d.node.close(eventlog.ErrClosed)
	}
}

// Fetch is the whole hash. What changes while it is read may be as it was or as
// it is; what stays is there. The error wraps ErrUnavailable if it may help to
// try again later.
func (d *Devices) Fetch(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	n, err := d.server(ctx)
	if err != nil {
		return nil, err
	}
	rows, size := map[string]string{}, 0
	for cursor := uint64(0); ; {
		next, page, err := d.page(ctx, n, cursor)
		if err != nil {
			return nil, fmt.Errorf("reading the devices in %s: %w", d.key, err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			size += len(page[i]) + len(page[i+1])
			rows[page[i]] = page[i+1]
		}
		if size > maxDevicesBytes {
			return nil, fmt.Errorf("the devices in %s are more than %d bytes, which no inventory has", d.key, maxDevicesBytes)
		}
		if next == 0 {
			return rows, nil
		}
		cursor = next
	}
}

// server is where the hash is now.
func (d *Devices) server(ctx context.Context) (*node, error) {
	addr := d.way.addr
	if d.locator != nil {
		c, err := d.locator.look(ctx)
		if err != nil {
			return nil, fmt.Errorf("asking who serves the devices: %w", err)
		}
		if addr = c.at(slotOf(d.key)); addr == "" {
			return nil, unavailable(errors.New("nobody serves the devices' slot of the cluster"))
		}
	}
	if d.node != nil && d.node.addr == addr {
		return d.node, nil
	}
	if d.node != nil {
		d.node.close(unavailable(errMoved))
	}
	way := d.way
	if addr != way.addr {
		way = way.at(addr)
	}
	d.node = newNode(way, &d.opts)
	return d.node, nil
}

// page is one step of the walk over the hash: fields and values in turn.
func (d *Devices) page(ctx context.Context, n *node, cursor uint64) (next uint64, page []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.CallTimeout)
	defer cancel()
	reply, err := n.do(ctx, n.client.B().Arbitrary("HSCAN").Keys(d.key).Args(strconv.FormatUint(cursor, 10), "COUNT", strconv.Itoa(scanEntries)).Build())
	if err != nil {
		return 0, nil, err
	}
	parts, err := arrays(reply, 2)
	if err != nil {
		return 0, nil, err
	}
	text, err := parts[0].ToString()
	if err == nil {
		next, err = strconv.ParseUint(text, 10, 64)
	}
	if err == nil {
		page, err = parts[1].AsStrSlice()
	}
	if err != nil || len(page)%2 != 0 {
		return 0, nil, oddReply(err)
	}
	return next, page, nil
}
