// Command hunt is a treasure hunt for thousands of players, and an example of what
// an application on Downlink looks like: its state is in Redis, its live updates
// go through a gateway, and a governor says how many may play. It owns the command
// line; the game is in package game. Its invariant: it ends at any time without
// losing a point.
package main

import (
	"os"

	"github.com/alecthomas/kong"
)

// cli is the grammar of the command line.
type cli struct {
	Serve serveCmd `cmd:"" help:"Run the game."`
}

func main() {
	var commands cli
	parsed := kong.Parse(&commands, kong.Name("hunt"), kong.UsageOnError(),
		kong.Description("A treasure hunt for thousands of players, on Downlink."), kong.Bind(os.Stdout))
	parsed.FatalIfErrorf(parsed.Run())
}
