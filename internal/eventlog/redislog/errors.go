package redislog

import (
	"errors"
	"fmt"
	"strings"

	"downlink/internal/eventlog"
)

func unavailable(err error) error { return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err) }

// translateReply turns an error reply into one of the contract's errors. Every
// reply that may be different tomorrow is ErrUnavailable: the server is
// loading, is a replica now, has run out of disk, or lacks a permission.
func translateReply(text string) error {
	text = refusal(text)
	switch word, _, _ := strings.Cut(text, " "); {
	case word == "OOM":
		return fmt.Errorf("%w: Redis has reached maxmemory; raise it or shorten the window", eventlog.ErrFull)
	case strings.Contains(text, "exhausted the last possible ID"):
		return eventlog.ErrExhausted
	case word == "WRONGTYPE":
		return unavailable(errors.New("a key of the log holds something else; choose another prefix or delete that key"))
	case word == "NOPERM":
		return unavailable(fmt.Errorf("the Redis user lacks a permission that the gateway needs (docs/operate/redis.md lists them): %s", text))
	case word == "NOREPLICAS":
		return unavailable(errors.New("Redis takes no writes while it has fewer replicas than min-replicas-to-write asks for"))
	default:
		return unavailable(fmt.Errorf("Redis answered: %s", firstLine(text)))
	}
}

// refusal is why a transaction was refused, if that is what the reply says.
func refusal(text string) string {
	return strings.TrimPrefix(text, "EXECABORT Transaction discarded because of: ")
}

// firstLine keeps a script's error from bringing its trace along.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	const most = 300
	if len(line) > most {
		line = line[:most]
	}
	return strings.ToValidUTF8(line, "?")
}
