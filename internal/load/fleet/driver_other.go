//go:build !linux

package fleet

func newDriver(o Options, settled func(n int)) (driver, error) { return newPortable(o, settled), nil }
