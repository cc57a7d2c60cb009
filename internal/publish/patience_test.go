package publish

import (
	"testing"
	"testing/synctest"
	"time"
)

// Nobody gets less than the limit, nor a 64th more than that; and those that
// come together share a context.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 64 * time.Second
		p := patience{limit: limit}
		first := p.context()
		time.Sleep(999 * time.Millisecond) //nolint:forbidigo // in a synctest bubble
		if p.context() != first {
			t.Error("two that come together have two contexts")
		}
		for range 300 {
			ctx := p.context()
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left < limit || left > limit+limit/64 {
				t.Fatalf("%v are left", left)
			}
			time.Sleep(301 * time.Millisecond) //nolint:forbidigo // in a synctest bubble
		}
		if p.context() == first || first.Err() == nil {
			t.Error("the first one goes on")
		}
	})
}
