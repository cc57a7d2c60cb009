package server

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// alone is the request in b if b is nothing but that request, with all of its
// body, and if there is nothing about it that net/http had better decide;
// otherwise nil. It is the request that http.ReadRequest would make, for a third
// of the time, and no more lenient: a fuzz test compares them. What it doesn't
// know it leaves to net/http, rules and bad manners alike. The request is a copy
// of like, its body stays in b, and its texts are parts of one string: who keeps
// one of them should clone it.
func alone(b []byte, like *http.Request) *http.Request {
	head, text, whole := bytes.Cut(b, []byte("\r\n\r\n"))
	if !whole {
		return nil
	}
	first, fields, _ := strings.Cut(string(head), "\r\n")
	r := new(http.Request)
	*r = *like
	if !requestLine(r, first) || !header(r, fields) || !described(r) {
		return nil
	}
	if r.ContentLength != int64(len(text)) {
		return nil
	}
	r.Body = http.NoBody
	if len(text) > 0 {
		body := new(memory)
		body.Reset(text)
		r.Body = body
	}
	return r
}

// memory is a body that has been read.
type memory struct{ bytes.Reader }

func (*memory) Close() error { return nil }

// requestLine reads "METHOD target HTTP/1.1" (RFC 9112 §3).
func requestLine(r *http.Request, line string) bool {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || version != "HTTP/1.1" || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") ||
		!httpguts.ValidHeaderFieldName(method) || !httpguts.ValidHeaderFieldValue(target) {
		return false
	}
	at, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	r.Method, r.RequestURI, r.URL = method, target, at
	r.Proto, r.ProtoMajor, r.ProtoMinor = version, 1, 1
	return true
}

// header reads the fields, each of which ends with CRLF but the last (RFC 9112
// §5). A line that begins with a space would continue the one before: net/http
// knows what to do with it.
func header(r *http.Request, fields string) bool {
	values := make([]string, 0, 1+strings.Count(fields, "\n"))
	r.Header = make(http.Header, cap(values))
	for fields != "" {
		var line string
		line, fields, _ = strings.Cut(fields, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		value = strings.Trim(value, " \t")
		if had := r.Header[name]; had != nil {
			r.Header[name] = append(had, value)
			continue
		}
		values = append(values, value)
		r.Header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	return true
}

// described takes what the header says of the request itself, and reports
// whether that is all that there is to say.
func described(r *http.Request) bool {
	for _, asks := range []string{"Transfer-Encoding", "Trailer", "Expect", "Upgrade", "Connection", "Pragma"} {
		if values := r.Header[asks]; values != nil && (asks != "Connection" || len(values) != 1 || !strings.EqualFold(values[0], "keep-alive")) {
			return false
		}
	}
	host := r.Header["Host"]
	if len(host) != 1 || host[0] == "" || !httpguts.ValidHostHeader(host[0]) {
		return false
	}
	r.Host = host[0]
	delete(r.Header, "Host")
	switch length := r.Header["Content-Length"]; {
	case length == nil:
		return true
	case len(length) != 1 || len(length[0]) > 9:
		return false
	default:
		n, err := strconv.ParseUint(length[0], 10, 31)
		r.ContentLength = int64(n) //nolint:gosec // 31 bits
		return err == nil && length[0] != ""
	}
}
