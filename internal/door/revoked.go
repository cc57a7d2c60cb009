package door

// Revoked reports whether a device that has passed was shut out since. Ask when
// its session can be found by whoever ends the sessions of revoked devices: one
// that comes in between escapes neither.
func (d *Door) Revoked(device string) bool {
	return d.opts.Revoked != nil && d.opts.Revoked(device)
}
