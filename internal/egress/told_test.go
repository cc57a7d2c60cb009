package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"testing"
)

// What a device has said isn't repeated in what people are told of it.
func TestToldRepeatsNothingOfTheOtherEnd(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errors.New("connection refused"))}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("broken: %w", fmt.Errorf("malformed HTTP status code %q", "/x?token="+secret)), "broken: malformed HTTP status code …"},
		{fmt.Errorf("broken: %w", textproto.ProtocolError("malformed MIME header line: "+secret)), errHeader.Error()},
		{fmt.Errorf("unsupported extensions from server: %+v", []struct{ name string }{{secret}}), "unsupported extensions from server …"},
		{errors.New("server response headers exceeded 16384 bytes; aborted"), "server response headers exceeded 16384 bytes; aborted"},
		{fmt.Errorf("read: %w", io.EOF), "read: EOF"},
		{&Error{Stage: Policy, Err: errURL}, "policy: " + errURL.Error()},
		{refused, refused.Error()},
	} {
		if got := Told(c.err).Error(); got != c.want || strings.Contains(got, secret) {
			t.Errorf("%q is told as %q, want %q", c.err, got, c.want)
		}
	}
}
