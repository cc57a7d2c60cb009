// Command downlink is the gateway (serve), its devices and producers (listen,
// publish, load), and tools for who runs it. It owns the command line, the exit
// codes and what a person reads on the terminal; the work is done in the
// packages. Its invariant: an error message says what to do next, and holds no
// password.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"downlink/internal/auth"
	"downlink/internal/config"
)

// version is set by the build: -ldflags "-X main.version=…".
var version string

func main() {
	// We don't use this logger. net/http does, for what a device says unasked: as
	// often as the device likes, in its own words, and past our form and level.
	log.SetOutput(io.Discard)
	term := console{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if len(os.Args) > 1 && os.Args[1] == "serve" { // other commands end, or take what they need
		term.signals = takeSignals()
	}
	os.Exit(run(os.Args[1:], os.Environ(), term))
}

// A console is what a command talks to.
type console struct {
	in       io.Reader
	out, err io.Writer
	signals  *signals // of serve, where they are taken over already; else nil
}

// commands is the grammar of the command line.
type commands struct {
	Serve      serveCmd      `cmd:"" help:"Run the gateway."`
	Dial       dialCmd       `cmd:"" help:"Connect to devices, where they can't connect to you."`
	Governor   governorCmd   `cmd:"" help:"Say what part of their full work other programs should do, while Redis or Kafka is short of room."`
	Publish    publishCmd    `cmd:"" help:"Send events to devices, through a gateway's back-end port."`
	Listen     listenCmd     `cmd:"" help:"Be a device on the terminal: print its events."`
	Load       loadCmd       `cmd:"" help:"Measure a server: be many devices and their producers, and report latencies, losses and costs."`
	Check      checkCmd      `cmd:"" help:"Check the configuration: report all problems at once, or print every effective value and where it comes from."`
	Plan       planCmd       `cmd:"" help:"Decide how to reach devices, and see what a ring of diallers costs, before there is one."`
	Explain    explainCmd    `cmd:"" help:"Say where a device is connected, how far behind it is, and why it was refused."`
	Disconnect disconnectCmd `cmd:"" help:"End a device's streams on every gateway; it may come back."`
	Revoke     revokeCmd     `cmd:"" help:"Let a device in no more, until that is lifted."`
	Restore    restoreCmd    `cmd:"" help:"Let a revoked device in again."`
	Token      tokenCmd      `cmd:"" help:"Make and inspect device tokens."`
	Health     healthCmd     `cmd:"" help:"Ask a gateway whether it is well: a probe for images without curl."`
	Limits     limitsCmd     `cmd:"" help:"Show every limit of a running gateway and why it is what it is, or change some at once."`
	Drain      drainCmd      `cmd:"" help:"Take a running gateway out of service: its devices move to others at a pace, and it ends."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

// run executes a command line and returns the exit code.
func run(args, environ []string, io console) int {
	var cmds commands
	loader := config.NewLoader(environ)
	parser, helped, err := newParser(&cmds, loader, io)
	if err != nil {
		return report(io.err, err)
	}
	ctx, err := parser.Parse(args)
	if *helped {
		return exitDone
	}
	if err != nil {
		// kong repeats the words that it doesn't understand; a URL may be among them.
		hint := "downlink --help"
		if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
			hint = parse.Context.Selected().FullPath() + " --help"
		}
		return report(io.err, usage(fmt.Errorf("%s\n%q tells more", withoutTokens(config.Mask(err.Error())), hint)))
	}
	return report(io.err, ctx.Run(loader, io))
}

// withoutTokens hides words that are long enough to be a token and no path.
func withoutTokens(text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		if len(word) >= auth.MinTokenLength && !strings.Contains(word, "/") {
			words[i] = "***"
		}
	}
	return strings.Join(words, " ")
}

// newParser also returns whether help was asked for and printed.
func newParser(cmds *commands, loader *config.Loader, io console) (*kong.Kong, *bool, error) {
	helped := new(bool)
	parser, err := kong.New(cmds, append(loader.Options(),
		kong.Name("downlink"),
		kong.Description("Pushes events to devices that stay connected, and resumes where each left off.\n\n"+exitCodes()),
		kong.Writers(io.out, io.err),
		kong.Exit(func(int) { *helped = true }),
	)...)
	if err != nil {
		return nil, nil, err
	}
	for _, command := range parser.Model.Leaves(false) {
		switch { // check is for all
		case command.Parent.Name == config.Dial:
			loader.Hide(command, config.Dial)
		case command.Parent.Name == config.Governor:
			loader.Hide(command, config.Governor)
		case command.Name == config.Serve:
			loader.Hide(command, config.Serve)
		}
	}
	return parser, helped, nil
}
