package client

import (
	"context"
	"fmt"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/event"
	"downlink/internal/frame"
)

// A desk takes what comes for a device, one frame at a time, and commits it.
type desk struct {
	handler Handler
	cursor  *keeper
}

// take deals with one frame and moves the cursor past it, unless the device has
// finished it before. The handler runs under ctx; what a resync has to wait for
// ends with patience, too, whose error it then is.
func (d *desk) take(ctx, patience context.Context, e frame.Event) error {
	resync := !e.Position && e.Type == event.ResyncType
	if e.HasID && !resync && d.cursor.finished(e.ID) {
		return nil
	}
	if e.Position {
		return d.cursor.move(e.ID)
	}
	if resync {
		if err := d.resync(ctx, patience, e); err != nil {
			return err
		}
	} else if err := d.handle(ctx, Event{ID: e.ID, Type: e.Type, Data: e.Data}); err != nil {
		return err
	}
	return d.cursor.commit(e.ID)
}

func (d *desk) handle(ctx context.Context, e Event) error {
	if err := d.handler.Event(ctx, e); err != nil {
		return fmt.Errorf("client: the handler of event %q (%q): %w", e.ID, e.Type, err)
	}
	return nil
}

// resync waits as asked and has the state fetched until that succeeds. Its
// error is a context's.
func (d *desk) resync(ctx, patience context.Context, e frame.Event) error {
	if d.handler.Resync == nil {
		return nil
	}
	told := frame.ParseResync(e.Data)
	if err := sleep(patience, told.After); err != nil {
		return err
	}
	again := backoff.Backoff{Base: time.Second, Max: maxBackoff}
	for attempt := 0; ; attempt++ {
		if d.handler.Resync(ctx, Resync{ID: e.ID, Reason: string(told.Reason)}) == nil {
			return nil
		}
		if err := sleep(patience, again.Delay(attempt)); err != nil {
			return err
		}
	}
}
