//go:build !linux

package fleet

func newDriver(o Options, settled func()) (driver, error) { return newPortable(o, settled), nil }
