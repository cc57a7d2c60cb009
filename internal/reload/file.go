package reload

import (
	"fmt"
	"io"
	"os"
)

// File reads a whole file of at most so many bytes: a wrong path (a device, a dump)
// must not be read into memory.
func File(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > most {
		return nil, fmt.Errorf("%s is too large for what it is: more than %d bytes", path, most)
	}
	return data, nil
}
