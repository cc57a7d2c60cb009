package client_test

import (
	"context"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"downlink/client"
)

// A device that gateways dial: it serves, under the URL that the inventory has
// for it, and takes a WebSocket as well as POSTs.
func ExampleReceiver() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	device, err := client.NewReceiver(client.ReceiverOptions{
		Device:  "store-0001/pos-1",
		Token:   "what the inventory's credential says",
		Cursors: &client.FileStore{Path: "cursor"}, // the generation is kept there, too
	}, client.Handler{
		Event: func(ctx context.Context, e client.Event) error {
			log.Printf("%s: %s (from %s)", e.Type, e.Data, client.SenderOf(ctx).Member)
			return nil // now the cursor moves past e; an error has it sent again
		},
		Resync: func(ctx context.Context, r client.Resync) error {
			log.Printf("something may be missing (%s): fetching everything", r.Reason)
			return fetchEverything(ctx)
		},
	})
	if err != nil {
		log.Print(err)
		return
	}
	server := &http.Server{Addr: ":8443", Handler: device, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // it takes no more calls; those that are open end with Close
	if err := server.ListenAndServeTLS("device.pem", "device.key"); err != nil {
		log.Print(err)
	}
	if err := device.Close(); err != nil { // after this the cursor is saved
		log.Print(err)
	}
}
