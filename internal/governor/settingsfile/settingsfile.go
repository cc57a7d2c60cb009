// Package settingsfile owns the file in which the settings of a governor stand, and
// the consumer groups of Kafka that it is to watch: how it is read, and that what has
// changed in it counts at once. It decides nothing about levers. Its invariant: what
// can't be used as a whole changes nothing.
package settingsfile

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"sync"

	"downlink/internal/governor"
	"downlink/internal/governor/kafkalag"
	"downlink/internal/reload"
)

// Options for a File.
type Options struct {
	Path string // empty: there is none
	// On is the switch outside of the file, asked at each Load: if it is off, the
	// governor is, whatever the file says. Nil: there is none.
	On func() bool
	// Signals and Levers are those of the governor that the settings are for.
	Signals []governor.Signal
	Levers  []string
	// Elsewhere are settings that aren't taken from the file, and where they are kept:
	// text that completes the sentence "floor …".
	Elsewhere map[string]string
	Kafka     *kafkalag.Slot // is given the probe of the groups
}

// A File is the settings as they were read last. Safe for concurrent use.
type File struct {
	opts Options

	mu     sync.Mutex
	sum    digest // of all that was read
	kafka  digest // of what the probe was made of
	patch  change
	on     bool
	govern *governor.Governor // nil: there is none yet
}

type (
	digest = [sha256.Size]byte
	change = func(*governor.Settings) error
)

// Open reads the file, so that a wrong one is known at once. Close it.
func Open(o Options) (*File, error) {
	f := &File{opts: o, on: true, patch: func(*governor.Settings) error { return nil }}
	if _, err := f.Load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Check says whether a file could be used, and leaves nothing behind.
func Check(o Options) error {
	o.Kafka = nil
	_, err := Open(o)
	return err
}

// Govern has the settings count for a governor: those that were read, and later ones
// as soon as they are.
func (f *File) Govern(g *governor.Governor) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := g.Load(both(f.patch, f.on)); err != nil {
		return f.wrong(err)
	}
	f.govern = g
	return nil
}

// Close leaves the governor as it is, and Kafka.
func (f *File) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.govern = nil
	if f.opts.Kafka != nil {
		f.opts.Kafka.Close()
	}
}

// Load reads the file again, and the files that it names. It is a reload.Source: it
// reports whether something has changed, and after an error all is as it was.
func (f *File) Load() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on := f.opts.On == nil || f.opts.On(); on != f.on { // also while the file can't be used
		if err := f.count(f.patch, on); err != nil {
			return false, f.wrong(err)
		}
		changed = true
	}
	r := &reader{sum: sha256.New()}
	patch, kafka, err := r.read(f.opts)
	if err != nil {
		return changed, f.wrong(err)
	}
	if sum := r.digest(); sum != f.sum {
		if err := f.take(patch, kafka); err != nil {
			return changed, f.wrong(err)
		}
		changed, f.sum = true, sum
	}
	return changed, nil
}

// take has what was read count.
func (f *File) take(patch change, kafka kafkaFile) error {
	probe, swap, err := f.probe(kafka)
	if err != nil {
		return err
	}
	if err := f.count(patch, f.on); err != nil {
		if probe != nil {
			probe.Close()
		}
		return err
	}
	if swap {
		f.opts.Kafka.Set(probe)
		f.kafka = kafka.sum
	}
	return nil
}

// probe makes one for other groups than are asked about; swap is false if they are
// the same.
func (f *File) probe(k kafkaFile) (probe *kafkalag.Probe, swap bool, err error) {
	if k.sum == f.kafka {
		return nil, false, nil
	}
	if k.named {
		if probe, err = kafkalag.New(k.options); err != nil {
			return nil, false, err
		}
	}
	if f.opts.Kafka == nil {
		if probe != nil {
			probe.Close()
		}
		return nil, false, nil
	}
	return probe, true, nil
}

// count has the file and the switch count for the governor. Before there is one, it
// finds out whether they could.
func (f *File) count(patch change, on bool) error {
	all := both(patch, on)
	if f.govern != nil {
		if err := f.govern.Load(all); err != nil {
			return err
		}
		f.patch, f.on = patch, on
		return nil
	}
	s := governor.Defaults(f.opts.Signals)
	if err := all(&s); err != nil {
		return err
	}
	if err := governor.Check(s, f.opts.Signals, f.opts.Levers); err != nil {
		return err
	}
	f.patch, f.on = patch, on
	return nil
}

// both is the change that the file and the switch make.
func both(patch change, on bool) change {
	return func(s *governor.Settings) error {
		if err := patch(s); err != nil {
			return err
		}
		s.On = s.On && on
		return nil
	}
}

func (f *File) wrong(err error) error {
	return fmt.Errorf("the settings of the governor in %s can't be used: %w", f.opts.Path, err)
}

// maxFileBytes is a hundred times what all settings need.
const maxFileBytes = 256 << 10

// A reader reads files, and makes one digest of all that it has read.
type reader struct {
	sum hash.Hash
}

func (r *reader) digest() digest { return digest(r.sum.Sum(nil)) }

func (r *reader) file(path string) ([]byte, error) {
	text, err := reload.File(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	one := sha256.Sum256(text)
	_, _ = r.sum.Write(one[:]) // a hash takes everything
	return text, nil
}

// read is what the file says. Without one it says nothing.
func (r *reader) read(o Options) (change, kafkaFile, error) {
	none := kafkaFile{}
	text := []byte("{}")
	if o.Path != "" {
		yaml, err := r.file(o.Path)
		if err != nil {
			return nil, none, err
		}
		if text, err = toJSON(yaml); err != nil {
			return nil, none, err
		}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, none, errShape
	}
	for name, why := range o.Elsewhere {
		if _, has := members[name]; has {
			return nil, none, governor.Faults{{Name: name, Reason: why}}
		}
	}
	kafka, err := r.kafka(members[kafkaName])
	if err != nil {
		return nil, none, err
	}
	delete(members, kafkaName)
	rest, err := json.Marshal(members)
	if err != nil {
		return nil, none, err
	}
	patch, err := governor.Patch(rest)
	return patch, kafka, err
}
