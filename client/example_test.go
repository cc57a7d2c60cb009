package client_test

import (
	"context"
	"errors"
	"log"
	"os/signal"
	"syscall"

	"downlink/client"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	device := client.Client{
		URL:     "https://push.example.com",
		Token:   "the device's token",
		Cursors: &client.FileStore{Path: "cursor"},
	}
	err := device.Run(ctx, client.Handler{
		Event: func(ctx context.Context, e client.Event) error {
			log.Printf("%s: %s", e.Type, e.Data)
			return nil // now the cursor moves past e
		},
		Resync: func(ctx context.Context, r client.Resync) error {
			log.Printf("something may be missing (%s): fetching everything", r.Reason)
			return fetchEverything(ctx)
		},
		Status: func(s client.Status) {
			if !s.Connected {
				log.Printf("no connection, next try in %v: %v", s.Wait, s.Err)
			}
		},
	})
	switch {
	case errors.Is(err, client.ErrUnauthorized):
		log.Print("the token has expired: get another one, then Run again")
	case errors.Is(err, context.Canceled):
		// stopped by a signal; the next Run goes on from the cursor
	default:
		log.Print(err)
	}
}

func fetchEverything(context.Context) error { return nil }
