package settingsfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"downlink/internal/strictyaml"
)

// toJSON turns a file into the form in which settings are written everywhere else.
// Its errors repeat nothing of the file.
func toJSON(text []byte) ([]byte, error) {
	// A file that is being written anew is empty for a moment.
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errEmpty
	}
	file, err := strictyaml.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, howToWrite)
	}
	switch {
	case len(file.Docs) > 1:
		return nil, errShape
	case len(file.Docs) == 0 || file.Docs[0].Body == nil: // comments alone
		return nil, errEmpty
	}
	var v map[string]any
	if err := strictyaml.Read(text, &v); err != nil {
		return nil, fmt.Errorf("%w; %s", err, howToWrite)
	}
	out, err := json.Marshal(v)
	if err != nil { // .inf, .nan
		return nil, errShape
	}
	return out, nil
}

var errEmpty = errors.New("it says nothing; to leave everything as it is by itself, write {}")

const howToWrite = "write settings of the governor such as `step: 0.1`, one a line, and signals: and kafka: as docs/operate/governor.md shows"

// errShape is said of a file that is something else.
var errShape = errors.New("it isn't understood; " + howToWrite)
