package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFileStore(t *testing.T) {
	dir := t.TempDir()
	s := &FileStore{Path: filepath.Join(dir, "cursor")}
	got, err := s.Load()
	if err != nil || got != (Cursor{}) {
		t.Fatalf("without a file: %+v, %v", got, err)
	}
	for _, want := range []Cursor{{ID: "1700000000000-3"}, {ID: "1700000000000-4", Groups: "g1,g2"}, {ID: "\u2026"}, {Groups: "g"}, {ID: "1-0", Generation: 1 << 63}, {Generation: 7}, {ID: "1-0", Groups: "g", Generation: 8}, {}} {
		if err := s.Save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	info, err := os.Stat(s.Path)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode %v, %v; want readable by its owner only", info.Mode(), err)
	}
}

func TestFileStoreReadsWhatPeopleWrite(t *testing.T) {
	s := &FileStore{Path: filepath.Join(t.TempDir(), "cursor")}
	for text, want := range map[string]Cursor{
		"5-0":               {ID: "5-0"},
		"5-0\r\n":           {ID: "5-0"},
		" 5-0 \n\n":         {ID: "5-0"},
		"":                  {},
		"5-0\ng1\nmore\n":   {ID: "5-0", Groups: "g1"},
		"\x00\x00\x00\x00":  {ID: "\x00\x00\x00\x00"}, // damaged: the gateway is told
		"5-0\ng1 \r\n\r\n ": {ID: "5-0", Groups: "g1"},
	} {
		if err := os.WriteFile(s.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	if err := os.WriteFile(s.Path, []byte("5-0\n\ngeneration many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(); err == nil { // else an owner of the past would be let in
		t.Errorf("a generation that is no number is read as %+v", got)
	}
}

// TestFileStoreSurvivesACut: what a crash leaves of the next cursor is not read.
func TestFileStoreSurvivesACut(t *testing.T) {
	s := &FileStore{Path: filepath.Join(t.TempDir(), "cursor")}
	if err := s.Save(Cursor{ID: "5-0"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path+".tmp", []byte("a much longer half-written cursor"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(); err != nil || got.ID != "5-0" {
		t.Errorf("after the crash: %+v, %v", got, err)
	}
	if err := s.Save(Cursor{ID: "6-0"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(); err != nil || got != (Cursor{ID: "6-0"}) {
		t.Errorf("after the next save: %+v, %v", got, err)
	}
}

func TestFileStoreErrors(t *testing.T) {
	dir := t.TempDir()
	missing := &FileStore{Path: filepath.Join(dir, "no", "cursor")}
	if err := missing.Save(Cursor{ID: "5-0"}); err == nil {
		t.Error("saved into a directory that isn't there")
	}
	if _, err := (&FileStore{Path: dir}).Load(); err == nil {
		t.Error("loaded a directory")
	}
	s := &FileStore{Path: filepath.Join(dir, "cursor")}
	if err := s.Save(Cursor{ID: "5-0"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.Path+".tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(Cursor{ID: "6-0"}); err == nil {
		t.Error("saved without a file beside the old one: a power cut would have left none")
	}
	if got, err := s.Load(); err != nil || got.ID != "5-0" {
		t.Errorf("after a save that failed: %+v, %v", got, err)
	}
	for _, c := range []Cursor{{ID: "5-0\ng"}, {ID: "5-0", Groups: "a\rb"}} {
		if err := s.Save(c); err == nil {
			t.Errorf("saved %+v, which it can't load", c)
		}
	}
	if err := os.WriteFile(s.Path, []byte(strings.Repeat("x", maxCursorFile+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(); err == nil || !strings.Contains(err.Error(), s.Path) {
		t.Errorf("a file that is no cursor file: %v", err)
	}
}
