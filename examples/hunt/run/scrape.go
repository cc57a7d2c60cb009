package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// asking is how long an answer may take, so that a sample is of its second.
const asking = 900 * time.Millisecond

// ready reports whether a gateway serves.
func ready(ctx context.Context, backend string) bool {
	body, err := get(ctx, backend+"/readyz")
	if err != nil {
		return false
	}
	return body.Close() == nil
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r) //nolint:bodyclose // by whoever gets it
	if err != nil {
		cancel()
		return nil, err
	}
	body := answered{answer.Body, cancel}
	if answer.StatusCode != http.StatusOK {
		_ = body.Close() // it is an error in any case
		return nil, fmt.Errorf("%s answered %s", url, answer.Status)
	}
	return body, nil
}

// answered is the body of an answer whose time is up when it is closed.
type answered struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (a answered) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

// A scrape is the metrics of one process, by their full names.
type scrape map[string]float64

// measure reads the metrics of one process.
func measure(ctx context.Context, url string) (scrape, error) {
	body, err := get(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	s := make(scrape)
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if ok {
			name += "}"
		} else if name, value, ok = strings.Cut(lines.Text(), " "); !ok {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !math.IsNaN(v) && name != "#" {
			s[name] = v
		}
	}
	return s, lines.Err()
}

// quantile is the upper bound of the bucket of a histogram in which the part q of
// its values ends, in seconds; 0 without any. labels is empty or `name="value",`.
func (s scrape) quantile(histogram, labels string, q float64) float64 {
	type bucket struct{ le, count float64 }
	var all []bucket
	for name, count := range s {
		bound, ok := strings.CutPrefix(name, histogram+"_bucket{"+labels+`le="`)
		if !ok {
			continue
		}
		if le, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64); err == nil {
			all = append(all, bucket{le, count})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	if len(all) == 0 || all[len(all)-1].count == 0 {
		return 0
	}
	for _, b := range all {
		if b.count >= q*all[len(all)-1].count {
			return b.le
		}
	}
	return math.Inf(1)
}

// A store is how full Redis is, as Redis itself reckons when it refuses.
type store struct {
	used, most float64 // bytes
	refused    int64   // commands for want of memory
}

// look asks Redis. Whoever measures a Redis that is full does so in its own words,
// on a connection of its own.
func look(ctx context.Context, addr string) (s store, err error) {
	conn, err := (&net.Dialer{Timeout: asking}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(asking)) // an error would come from the next call too
	if _, err := io.WriteString(conn, "INFO everything\r\n"); err != nil {
		return s, err
	}
	in := bufio.NewReader(conn)
	head, err := in.ReadString('\n')
	if err != nil {
		return s, err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil || size < 0 || size > 1<<20 {
		return s, errors.New("redis answered INFO with " + strings.TrimSpace(head))
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(in, text); err != nil {
		return s, err
	}
	for field := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(field), ":")
		number, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "used_memory":
			s.used += number
		case "mem_not_counted_for_evict":
			s.used -= number
		case "maxmemory":
			s.most = number
		case "errorstat_OOM":
			s.refused, _ = strconv.ParseInt(strings.TrimPrefix(value, "count="), 10, 64)
		}
	}
	return s, nil
}
