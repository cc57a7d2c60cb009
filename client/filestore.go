package client

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxCursorFile is far over any cursor.
const maxCursorFile = 64 << 10

// generationWord begins the third line.
const generationWord = "generation "

// A FileStore keeps a cursor in a file: the ID on the first line, the groups,
// if any, on the second, "generation" and its number, if any, on the third. Save replaces the file as a whole and has it on disk
// when it returns, so a power cut leaves the old cursor or the new one. One
// process per file; beside it Save uses Path + ".tmp".
type FileStore struct{ Path string }

// Load implements Store. A file that doesn't exist holds no cursor.
func (s *FileStore) Load() (Cursor, error) {
	f, err := os.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Cursor{}, nil
	}
	if err != nil {
		return Cursor{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCursorFile+1))
	if err != nil {
		return Cursor{}, err
	}
	if len(text) > maxCursorFile {
		return Cursor{}, fmt.Errorf("%s is no cursor file: it has more than %d bytes", s.Path, maxCursorFile)
	}
	id, rest, _ := strings.Cut(string(text), "\n")
	groups, rest, _ := strings.Cut(rest, "\n")
	third, _, _ := strings.Cut(rest, "\n")
	c := Cursor{ID: strings.TrimSpace(id), Groups: strings.TrimSpace(groups)}
	if number, ok := strings.CutPrefix(strings.TrimSpace(third), generationWord); ok {
		if c.Generation, err = strconv.ParseUint(number, 10, 64); err != nil {
			return Cursor{}, fmt.Errorf("%s is no cursor file: its third line names no generation", s.Path)
		}
	}
	return c, nil
}

// Save implements Store.
func (s *FileStore) Save(c Cursor) error {
	if strings.ContainsAny(c.ID+c.Groups, "\r\n") {
		return errors.New("a cursor with a line end in it can't be kept in a file")
	}
	text := c.ID + "\n"
	if c.Groups != "" || c.Generation > 0 {
		text += c.Groups + "\n"
	}
	if c.Generation > 0 {
		text += generationWord + strconv.FormatUint(c.Generation, 10) + "\n"
	}
	temporary := s.Path + ".tmp"
	if err := writeSynced(temporary, text); err != nil {
		return err
	}
	if err := os.Rename(temporary, s.Path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.Path))
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename last. Where directories can't be synced (Windows, some
// network file systems) the rename is as durable as the system makes it.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
