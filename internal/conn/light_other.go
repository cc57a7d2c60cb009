//go:build !linux

package conn

// NewLight is the ordinary driver where there is no epoll. It never fails.
func NewLight(o Ordinary) (Driver, error) { return o, nil }
