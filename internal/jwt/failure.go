package jwt

// A Failure is why a token isn't accepted: the same word in metric and
// documentation.
type Failure string

// The failures.
const (
	Malformed     Failure = "token_malformed"
	BadAlgorithm  Failure = "token_algorithm" // no key of this gateway is for it
	KeyUnknown    Failure = "token_key"
	BadSignature  Failure = "token_signature"
	Expired       Failure = "token_expired"
	TooEarly      Failure = "token_not_yet_valid"
	WrongIssuer   Failure = "token_issuer"
	WrongAudience Failure = "token_audience"
)

// An Error is a token that isn't accepted. Repeating it unchanged is useless.
type Error struct {
	Failure Failure
	text    string
}

func failed(why Failure, text string) *Error { return &Error{why, text} }

// Error says what is wrong, and what to do: in ASCII without quotes and
// backslashes, so that it can stand in a header.
func (e *Error) Error() string { return e.text }
