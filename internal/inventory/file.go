package inventory

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"downlink/internal/reload"
)

// maxListBytes is room for some hundred thousand devices; it keeps a wrong path
// or address from being read into memory.
const maxListBytes = 64 << 20

// A File is a source: YAML, JSON or CSV, by the end of its name.
type File struct {
	path string
	form format
	used [sha256.Size]byte // of the text that counts
}

// NewFile is a source that reads a file; an error says that its name doesn't
// tell how it is written.
func NewFile(path string) (*File, error) {
	f, err := formatOf(path)
	if err != nil {
		return nil, fmt.Errorf("the inventory %s: %w", path, err)
	}
	return &File{path: path, form: f}, nil
}

func formatOf(path string) (format, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml":
		return formatYAML, nil
	case ".json":
		return formatJSON, nil
	case ".csv":
		return formatCSV, nil
	}
	return "", errors.New("its name must end with .yaml, .yml, .json or .csv")
}

// Name is the path.
func (f *File) Name() string { return f.path }

// Fetch reads the file.
func (f *File) Fetch(context.Context) (*List, error) {
	text, err := reload.File(f.path, maxListBytes)
	if err != nil {
		return nil, err
	}
	return listOf(f.path, f.form, text, &f.used)
}

// listOf parses a text unless it is the one that counts.
func listOf(name string, f format, text []byte, used *[sha256.Size]byte) (*List, error) {
	sum := sha256.Sum256(text)
	if sum == *used {
		return nil, nil
	}
	entries, err := parse(f, text)
	if err != nil {
		return nil, fmt.Errorf("%s can't be used: %w", name, err)
	}
	return &List{Entries: entries, Used: func() { *used = sum }}, nil
}
