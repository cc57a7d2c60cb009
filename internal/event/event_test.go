package event

import (
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestShardVectors: other languages and HAProxy compute the same shards.
func TestShardVectors(t *testing.T) {
	for device, want := range map[string]int{
		"A83F21": 27, "pos-83f21": 35, "demo": 32, "store-0001/pos-1": 61, "매장-12": 14, "device-0": 47, "device-1": 57,
	} {
		if got := Shard(device, 64); got != want {
			t.Errorf("Shard(%q, 64) = %d, want %d", device, got, want)
		}
	}
}

func TestShardInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		device, shards := rapid.String().Draw(t, "device"), rapid.IntRange(1, 1<<20).Draw(t, "shards")
		if got := Shard(device, shards); got < 0 || got >= shards {
			t.Fatalf("Shard(%q, %d) = %d", device, shards, got)
		}
		if got, want := Shard(device, shards), int(crc32.ChecksumIEEE([]byte(device))%uint32(shards)); got != want {
			t.Fatalf("Shard(%q, %d) = %d, the checksum's is %d", device, shards, got, want)
		}
	})
}

func TestValidateDevice(t *testing.T) {
	good := []string{
		"a", "A83F21", "매장-12", "store-0001/pos-1", " ", "a b", "-", "$", "a*", "a@b", "\u00a0", "🧾",
		strings.Repeat("x", 128), strings.Repeat("매", 42) + "xx",
	}
	for _, s := range good {
		if err := ValidateDevice(s); err != nil {
			t.Errorf("ValidateDevice(%q) = %v", s, err)
		}
	}
	bad := append(badTexts(),
		"", "*", "**", "*a", "@", "@a", strings.Repeat("x", 129), strings.Repeat("매", 43))
	for _, s := range bad {
		wantField(t, "device", s, ValidateDevice(s))
	}
}

// badTexts are refused in every field that must stay on one line.
func badTexts() []string {
	bad := []string{"\xff", "a\xe2\x80", "\xed\xa0\x80", "a\u2028", "a\u2029b"}
	for r := range rune(0x20) {
		bad = append(bad, "a"+string(r)+"b")
	}
	for r := rune(0x7f); r <= 0x9f; r++ {
		bad = append(bad, "a"+string(r))
	}
	return bad
}

func wantField(t *testing.T, field, value string, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Field != field || e.Reason == "" {
		t.Errorf("%s %.40q: error %v, want an *Error for it", field, value, err)
		return
	}
	if strings.ContainsAny(err.Error(), "\r\n\x00") || !utf8.ValidString(err.Error()) {
		t.Errorf("%s: the error's text %q repeats what it refuses", field, err)
	}
}

func TestValidateTarget(t *testing.T) {
	for target, toAll := range map[string]bool{
		"*": true, "@g": true, "@*": true, "@g@": true, "@" + strings.Repeat("g", 127): true, "a": false, "매장-12": false,
	} {
		if err := ValidateTarget(target); err != nil {
			t.Errorf("ValidateTarget(%q) = %v", target, err)
		}
		if ToAll(target) != toAll {
			t.Errorf("ToAll(%q) = %v", target, !toAll)
		}
	}
	for target, field := range map[string]string{
		"": "device", "**": "device", "*a": "device", "@": "group", "@@": "group", "@@north": "group", "@a\n": "group", "@" + strings.Repeat("g", 128): "group",
	} {
		wantField(t, field, target, ValidateTarget(target))
	}
}

func TestValidateType(t *testing.T) {
	for _, s := range []string{"a", "order.push", "message", "Resync", "resync ", "resyncs", strings.Repeat("x", 128)} {
		if err := ValidateType(s); err != nil {
			t.Errorf("ValidateType(%q) = %v", s, err)
		}
	}
	for _, s := range append(badTexts(), "", "resync", "resync\n", strings.Repeat("x", 129)) {
		wantField(t, "type", s, ValidateType(s))
	}
}

func TestValidate(t *testing.T) {
	valid := Event{
		Target: "A83F21", Type: "order.push", Payload: "a\r\n\x00\u2028",
		Key: strings.Repeat("k", 128), Idem: strings.Repeat("i", 256), Trace: strings.Repeat("t", 128),
	}
	if err := valid.Validate(0); err != nil {
		t.Fatalf("a valid event: %v", err)
	}
	tests := []struct {
		field  string
		change func(*Event)
	}{
		{"device", func(e *Event) { e.Target = "" }},
		{"group", func(e *Event) { e.Target = "@" }},
		{"type", func(e *Event) { e.Type = ResyncType }},
		{"type", func(e *Event) { e.Type = "" }},
		{"payload", func(e *Event) { e.Payload = "\xff" }},
		{"key", func(e *Event) { e.Key += "k" }},
		{"key", func(e *Event) { e.Key = "a\nb" }},
		{"idem", func(e *Event) { e.Idem += "i" }},
		{"idem", func(e *Event) { e.Idem = "\xff" }},
		{"trace", func(e *Event) { e.Trace += "t" }},
		{"trace", func(e *Event) { e.Trace = "\x1b[2J" }},
	}
	for _, tt := range tests {
		e := valid
		tt.change(&e)
		wantField(t, tt.field, "", e.Validate(0))
	}
}

func TestValidatePayloadSize(t *testing.T) {
	e := Event{Target: "a", Type: "t", Payload: strings.Repeat("x", 100)}
	for limit, ok := range map[int]bool{0: true, 100: true, 101: true, 99: false, 1: false} {
		if err := e.Validate(limit); errors.Is(err, ErrTooLarge) == ok || ok != (err == nil) {
			t.Errorf("100 bytes with a limit of %d: %v", limit, err)
		}
	}
	e.Payload = ""
	if err := e.Validate(1); err != nil {
		t.Errorf("an empty payload: %v", err)
	}
}

// TestValidatedStaysOnOneLine is the invariant that frames and logs build on.
func TestValidatedStaysOnOneLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		if ValidateDevice(s) != nil && ValidateType(s) != nil {
			return
		}
		if s == "" || len(s) > 128 || !utf8.ValidString(s) || strings.ContainsAny(s, "\r\n\x00\u0085\u2028\u2029\v\f") {
			t.Fatalf("accepted %q", s)
		}
	})
}

func TestReasons(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range Reasons() {
		if r == "" || seen[r] {
			t.Errorf("reason %q is empty or twice in the list", r)
		}
		seen[r] = true
	}
	for _, r := range []Reason{NoCursor, WindowExpired, InvalidCursor, LogRewound, LogUncertain, GroupsChanged, EventTooLarge} {
		if !seen[r] {
			t.Errorf("reason %q is missing from the list", r)
		}
	}
}
