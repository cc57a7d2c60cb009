package reload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFile: a file is read as far as it is allowed to go, and one without an end isn't.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := File(path, 4); err != nil || string(data) != "1234" {
		t.Errorf("%q %v", data, err)
	}
	for _, c := range []struct {
		path string
		most int
		want string
	}{
		{path, 3, path + " is too large for what it is: more than 3 bytes"},
		{"/dev/zero", 1 << 20, "too large"},
		{path + "x", 4, "no such file"},
		{filepath.Dir(path), 4, "is a directory"},
	} {
		if data, err := File(c.path, c.most); err == nil || !strings.Contains(err.Error(), c.want) || data != nil {
			t.Errorf("%s: %d bytes, %v", c.path, len(data), err)
		}
	}
}

// TestFilesAreReadInOnePlace: who reads a file that an operator names doesn't do it by
// himself, without a bound or with one of his own.
func TestFilesAreReadInOnePlace(t *testing.T) {
	for _, name := range []string{"auth/tokens.go", "jwt/keys.go", "access/file.go", "ticket/secrets.go", "certs/authorities.go"} {
		text, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "os.Open") || strings.Contains(string(text), "os.ReadFile") {
			t.Errorf("%s reads files by itself", name)
		}
	}
}
