package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"downlink/internal/load/template"
)

// requests builds what devices send when they connect. What it holds of a
// device is used by that device's lane only.
type requests struct {
	opts         *Options
	host         string
	path         template.Template
	resumePath   template.Template
	fields       []template.Template
	resumeFields []template.Template
	known        []bool     // the device was connected before
	captured     []captured // nil without captures
}

// captured is what was found in a device's streams so far.
type captured struct {
	values [][]byte // by capture; nil as long as it wasn't found
	seen   []byte   // the last bytes, as long as something is missing
}

// maxSeen is how much of a stream is kept to look for captures, in bytes.
const maxSeen = 4 << 10

func newRequests(o *Options, u *url.URL) (*requests, error) {
	r := &requests{opts: o, host: u.Host, known: make([]bool, o.Devices)}
	names := []string{"device", "n", "token", "id"}
	for _, c := range o.Captures {
		names = append(names, c.Name)
	}
	var err error
	if r.path, err = pathTemplate(o.URL, names); err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	r.resumePath = r.path
	if o.ResumeURL != "" {
		if again, err := targetURL(o.ResumeURL); err != nil || again.Host != u.Host {
			return nil, fmt.Errorf("--resume-url must be an address on the same host as --url")
		}
		if r.resumePath, err = pathTemplate(o.ResumeURL, names); err != nil {
			return nil, fmt.Errorf("--resume-url: %w", err)
		}
	}
	if r.fields, err = headerTemplates("--header", o.Headers, names); err != nil {
		return nil, err
	}
	if o.ResumeHeader != "" {
		if r.resumeFields, err = headerTemplates("--resume-header", []string{o.ResumeHeader}, names); err != nil {
			return nil, err
		}
	}
	if o.Token == nil && r.uses("token") {
		return nil, fmt.Errorf("{token} needs --token-secret-file, the secret that the server verifies with")
	}
	if len(o.Captures) > 0 {
		r.captured = make([]captured, o.Devices)
	}
	return r, nil
}

func (r *requests) uses(name string) bool {
	used := r.path.Uses(name) || r.resumePath.Uses(name)
	for _, f := range append(r.fields, r.resumeFields...) {
		used = used || f.Uses(name)
	}
	return used
}

// pathTemplate is what of a URL stands in a request.
func pathTemplate(text string, names []string) (template.Template, error) {
	_, rest, _ := strings.Cut(text, "://")
	path := "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		path = rest[i:]
	}
	if path[0] == '?' {
		path = "/" + path
	}
	path, _, _ = strings.Cut(path, "#")
	if strings.ContainsAny(path, " \r\n\t") {
		return template.Template{}, fmt.Errorf("it has a space or a line end in it; write it as %%20")
	}
	return template.Parse(path, names...)
}

func headerTemplates(flag string, lines, names []string) ([]template.Template, error) {
	var all []template.Template
	for _, line := range lines {
		name, _, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(line, "\r\n") {
			return nil, fmt.Errorf("%s %q isn't of the form \"Name: value\"", flag, name)
		}
		t, err := template.Parse(line, names...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// Append builds a device's request; id is its last event ID.
func (r *requests) Append(b []byte, device int, id []byte) []byte {
	again := r.known[device]
	path := r.path
	if again {
		path = r.resumePath
	}
	b = append(b, "GET "...)
	b = path.Append(b, func(b []byte, name string) []byte {
		return append(b, url.QueryEscape(string(r.value(nil, name, device, id)))...)
	})
	b = append(b, " HTTP/1.1\r\nHost: "+r.host+"\r\nAccept: text/event-stream\r\n"...)
	plain := func(b []byte, name string) []byte {
		start := len(b)
		b = r.value(b, name, device, id)
		for i := start; i < len(b); i++ {
			if b[i] == '\r' || b[i] == '\n' {
				b[i] = ' ' // what a server sent must not become a field of its own
			}
		}
		return b
	}
	for _, f := range r.fields {
		b = append(f.Append(b, plain), "\r\n"...)
	}
	if again {
		for _, f := range r.resumeFields {
			if len(id) > 0 || !f.Uses("id") {
				b = append(f.Append(b, plain), "\r\n"...)
			}
		}
	}
	return append(b, "\r\n"...)
}

func (r *requests) value(b []byte, name string, device int, id []byte) []byte {
	switch name {
	case "device":
		return strconv.AppendInt(append(b, r.opts.Prefix...), int64(device), 10)
	case "n":
		return strconv.AppendInt(b, int64(device), 10)
	case "token":
		return r.opts.Token.Append(b, r.opts.deviceName(device), device, time.Now())
	case "id":
		return append(b, id...)
	}
	for i, c := range r.opts.Captures {
		if c.Name == name && r.captured[device].values != nil {
			return append(b, r.captured[device].values[i]...)
		}
	}
	return b
}

// look searches a piece of a device's stream for what is still to be captured.
func (r *requests) look(device int, piece []byte) {
	c := &r.captured[device]
	if c.values == nil {
		c.values = make([][]byte, len(r.opts.Captures))
	}
	missing := 0
	c.seen = append(c.seen, piece...)
	for i, capture := range r.opts.Captures {
		if c.values[i] != nil {
			continue
		}
		if m := capture.Pattern.FindSubmatch(c.seen); m != nil {
			c.values[i] = append([]byte{}, m[1]...)
		} else {
			missing++
		}
	}
	if missing == 0 {
		c.seen = nil
	} else if over := len(c.seen) - maxSeen; over > 0 {
		c.seen = bytes.Clone(c.seen[over:])
	}
}

// wants reports whether a device's streams must be looked at.
func (r *requests) wants(device int) bool {
	c := &r.captured[device]
	return c.values == nil || c.seen != nil
}
