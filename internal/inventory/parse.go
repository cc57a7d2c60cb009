package inventory

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"downlink/internal/strictyaml"
)

// A format is how a list is written down.
type format string

const (
	formatYAML format = "YAML"
	formatJSON format = "JSON"
	formatCSV  format = "CSV"
)

// Its members, in every format.
const (
	memberID         = "id"
	memberURL        = "url"
	memberGroups     = "groups"
	memberCredential = "credential"
)

var errEmpty = errors.New("it is empty; a list without devices is [], in CSV a line with the names of the columns")

// parse reads a list. What is wrong with one entry is said in it; an error means
// that the text as a whole isn't one: half of it may be missing, so nothing of
// it counts.
func parse(f format, text []byte) ([]Entry, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		return nil, errors.New("it isn't UTF-8")
	}
	// A file that is being written anew is empty for a moment.
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errEmpty
	}
	switch f {
	case formatCSV:
		return parseCSV(text)
	case formatJSON:
		return parseJSON(text)
	default:
		return parseYAML(text)
	}
}

// parseJSON reads an array of objects.
func parseJSON(text []byte) ([]Entry, error) {
	if !json.Valid(text) {
		return nil, errors.New("it isn't JSON")
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if first, _ := in.Token(); first != json.Delim('[') {
		return nil, errors.New(`it isn't an array of devices: [{"id":"pos-1","url":"https://…"}, …]`)
	}
	var entries []Entry
	for in.More() {
		var object json.RawMessage
		if err := in.Decode(&object); err != nil {
			return nil, errors.New("it isn't JSON")
		}
		if len(entries) == maxEntries {
			return nil, errEntries
		}
		var d struct {
			ID string `json:"id"`
			row
		}
		err := decodeJSON(object, &d)
		entries = append(entries, Entry{Device: d.device(d.ID), Err: err})
	}
	return entries, nil
}

// maxEntries bounds what a list of rubbish costs before it is refused: an entry
// of three bytes takes a hundred.
const maxEntries = 1 << 20

var errEntries = fmt.Errorf("it has more than %d entries", maxEntries)

// A row is a device without its ID, as it is written in JSON.
type row struct {
	URL        string   `json:"url"`
	Groups     []string `json:"groups"`
	Credential string   `json:"credential"`
}

func (r *row) device(id string) Device {
	return Device{ID: id, URL: r.URL, Groups: r.Groups, Credential: r.Credential}
}

// decodeJSON reads one object. It refuses members that it doesn't know, because a
// misspelt one would be a device without its groups, in silence; its error is
// without what stands there.
func decodeJSON(object []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(object))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil || in.More() {
		return errObject
	}
	return nil
}

var errObject = errors.New("it isn't an object with id, url, and any of groups and credential, and nothing else")

// parseYAML reads a list of maps. A member that isn't known, or of another type,
// is an error of the whole: the reader doesn't go on behind it.
func parseYAML(text []byte) ([]Entry, error) {
	var list []struct {
		ID         string   `yaml:"id"`
		URL        string   `yaml:"url"`
		Groups     []string `yaml:"groups"`
		Credential string   `yaml:"credential"`
	}
	if len(text) > maxYAMLBytes {
		return nil, errLong
	}
	if err := strictyaml.Read(text, &list); err != nil {
		return nil, fmt.Errorf("%w; write a list whose entries have id, url, and any of groups and credential", err)
	}
	entries := make([]Entry, len(list))
	for i, e := range list {
		entries[i] = Entry{Device: Device(e)}
	}
	return entries, nil
}

// maxYAMLBytes bounds a list in YAML: the reader needs a hundred times a text's
// size in memory, and seconds for each megabyte.
const maxYAMLBytes = 8 << 20

var errLong = fmt.Errorf("it has more than %d MiB, which is too much for YAML; write it as CSV or JSON", maxYAMLBytes>>20)

// parseCSV reads lines whose first names the columns. Groups stand in one
// column, with semicolons between.
func parseCSV(text []byte) ([]Entry, error) {
	in := csv.NewReader(bytes.NewReader(text))
	in.FieldsPerRecord = -1
	in.ReuseRecord = true
	names, err := in.Read()
	if err != nil {
		return nil, csvError(err)
	}
	columns, err := columnsOf(names)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, min(bytes.Count(text, []byte("\n")), maxEntries))
	for {
		record, err := in.Read()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return nil, csvError(err)
		}
		if len(entries) == maxEntries {
			return nil, errEntries
		}
		e := Entry{}
		e.Line, _ = in.FieldPos(0)
		for i := range min(len(record), len(columns)) {
			set(&e.Device, columns[i], record[i])
		}
		if len(record) != len(columns) {
			e.Err = fmt.Errorf("it has %d fields, and the first line names %d columns", len(record), len(columns))
		}
		entries = append(entries, e)
	}
}

// csvError is without what stands in the line.
func csvError(err error) error {
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("line %d isn't CSV: %w", bad.Line, bad.Err)
	}
	return errors.New("it isn't CSV")
}

// columnsOf checks the line with the names: a misspelt one would be a device
// without its groups, in silence.
func columnsOf(names []string) ([]string, error) {
	columns := make([]string, len(names))
	for i, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		switch name {
		case memberID, memberURL, memberGroups, memberCredential:
		default:
			return nil, fmt.Errorf("column %d isn't one of id, url, groups, credential; the first line must name the columns", i+1)
		}
		if slices.Contains(columns[:i], name) {
			return nil, fmt.Errorf("the column %s stands there twice", name)
		}
		columns[i] = name
	}
	if !slices.Contains(columns, memberID) || !slices.Contains(columns, memberURL) {
		return nil, errors.New("the first line must name at least the columns id and url")
	}
	return columns, nil
}

func set(d *Device, column, value string) {
	switch column {
	case memberID:
		d.ID = value
	case memberURL:
		d.URL = strings.TrimSpace(value)
	case memberCredential:
		d.Credential = strings.TrimSpace(value)
	case memberGroups:
		for g := range strings.SplitSeq(value, ";") {
			if g = strings.TrimSpace(g); g != "" {
				d.Groups = append(d.Groups, g)
			}
		}
	}
}
