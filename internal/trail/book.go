package trail

import (
	"slices"
	"strings"
)

// perDevice is how many entries one device has at most: a device that comes and
// goes all the time displaces its own.
const perDevice = 16

// A book is the entries of many devices; when it is full, the device of which
// nothing was heard for longest loses its oldest one.
type book struct {
	devices     map[string]*record
	first, last *record // by when something was heard of them
	entries     int
}

// A record is the entries of a device, oldest first.
type record struct {
	device     string
	entries    []Entry
	prev, next *record
}

func newBook() book { return book{devices: make(map[string]*record)} }

// note adds an entry, and forgets others until at most so many are left.
func (b *book) note(device string, e Entry, most int) {
	r := b.devices[device]
	if r == nil {
		r = &record{device: strings.Clone(device)} // it may be a part of something larger
		b.devices[r.device] = r
	} else {
		b.unlink(r)
	}
	b.push(r)
	b.add(r, e)
	for b.entries > most {
		b.forget(b.first)
	}
}

// add counts an entry that says the same as the newest one with that.
func (b *book) add(r *record, e Entry) {
	if n := len(r.entries); n > 0 && r.entries[n-1].Kind == e.Kind && r.entries[n-1].Word == e.Word {
		newest := &r.entries[n-1]
		e.First, e.Times = newest.First, newest.Times+1
		*newest = e
		return
	}
	if len(r.entries) == perDevice {
		r.entries = slices.Delete(r.entries, 0, 1)
		b.entries--
	}
	r.entries = append(r.entries, e)
	b.entries++
}

// forget drops a record's oldest entry, and the record with the last one.
func (b *book) forget(r *record) {
	b.entries--
	if r.entries = slices.Delete(r.entries, 0, 1); len(r.entries) == 0 {
		b.unlink(r)
		delete(b.devices, r.device)
	}
}

func (b *book) push(r *record) {
	if r.prev, r.next = b.last, nil; b.last == nil {
		b.first = r
	} else {
		b.last.next = r
	}
	b.last = r
}

func (b *book) unlink(r *record) {
	if r.prev == nil {
		b.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		b.last = r.prev
	} else {
		r.next.prev = r.prev
	}
}

// of is a copy of a device's entries, newest first.
func (b *book) of(device string) []Entry {
	r := b.devices[device]
	if r == nil {
		return nil
	}
	entries := slices.Clone(r.entries)
	slices.Reverse(entries)
	return entries
}
