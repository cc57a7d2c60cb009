package fleet

func newDriver(o Options, settled func(n int)) (driver, error) {
	if o.TLS != nil || o.Portable {
		return newPortable(o, settled), nil
	}
	return newLoops(o, settled)
}
