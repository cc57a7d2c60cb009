package producer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"downlink/internal/load/template"
)

// Foreign is any HTTP API with which one request publishes one event. In its
// templates {device} is escaped for where it stands, {payload} is a JSON object
// and {payload_string} the same as what stands inside a JSON string.
type Foreign struct {
	URL     string
	Body    string
	Headers []string // "Name: value"
}

type foreign struct {
	*caller
	path   template.Template
	body   template.Template
	fields []string
	head   []byte
	filled []byte
}

// New makes a Sender; what it says of a wrong template is for a person.
func (f Foreign) New() (Sender, error) {
	whole := strings.NewReplacer("{device}", "device").Replace(f.URL)
	u, err := parseHTTP(whole)
	if err != nil {
		return nil, fmt.Errorf("--publish-url: %w", err)
	}
	s := &foreign{caller: newCaller(u), fields: append(authorization(u), f.Headers...)}
	for _, h := range s.fields {
		if strings.ContainsAny(h, "\r\n") || !strings.Contains(h, ":") {
			return nil, fmt.Errorf("--publish-header %q isn't of the form \"Name: value\"", strings.SplitN(h, ":", 2)[0])
		}
	}
	_, rest, _ := strings.Cut(f.URL, "://")
	i := strings.IndexAny(rest, "/?")
	if i < 0 {
		rest, i = "/", 0
	}
	path := rest[i:]
	if path[0] == '?' {
		path = "/" + path
	}
	if strings.ContainsAny(path, " \r\n") {
		return nil, fmt.Errorf("--publish-url has a space or a line end in it: write it as %%20")
	}
	if s.path, err = template.Parse(path, "device"); err != nil {
		return nil, fmt.Errorf("--publish-url: %w", err)
	}
	if s.body, err = template.Parse(f.Body, "device", "payload", "payload_string"); err != nil {
		return nil, fmt.Errorf("--publish-body: %w", err)
	}
	return s, nil
}

// authorization is the field for a URL's user and password, if it has any.
func authorization(u *url.URL) []string {
	if u.User == nil {
		return nil
	}
	password, _ := u.User.Password()
	return []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))}
}

// Publish implements Sender, one request an event.
func (f *foreign) Publish(ctx context.Context, events []Event, outcomes []Outcome) error {
	var first error
	for i, e := range events {
		var err error
		if outcomes[i], err = f.publish(ctx, e); first == nil {
			first = err
		}
	}
	return first
}

func (f *foreign) publish(ctx context.Context, e Event) (Outcome, error) {
	path := f.path.Append(nil, func(b []byte, _ string) []byte { return append(b, url.QueryEscape(e.Device)...) })
	f.head = f.begin(f.head[:0], string(path), "", f.fields)
	f.filled = f.body.Append(f.filled[:0], func(b []byte, name string) []byte {
		switch name {
		case "device":
			return append(b, inString(e.Device)...)
		case "payload_string":
			return append(b, inString(string(e.Payload))...)
		}
		return append(b, e.Payload...)
	})
	status, answer, sent, err := f.post(ctx, f.head, f.filled)
	switch {
	case err != nil && sent:
		return Unknown, err
	case err != nil:
		return Refused, err
	case status >= 500:
		return Unknown, refusal(status, answer)
	case status < 200 || status > 299:
		return Refused, refusal(status, answer)
	}
	return Accepted, nil
}

// inString is a text as it stands inside a JSON string.
func inString(text string) []byte {
	quoted := appendString(nil, text)
	return quoted[1 : len(quoted)-1]
}

// appendString appends a JSON string.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a string always can be
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
