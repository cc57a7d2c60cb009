package event

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const top = "18446744073709551615"

func TestParseID(t *testing.T) {
	for s, want := range map[string]ID{
		"0-0":                 {},
		"1-0":                 {1, 0},
		"0-1":                 {0, 1},
		"1700000000000-12":    {1700000000000, 12},
		top + "-" + top:       MaxID,
		"10-10":               {10, 10},
		"9007199254740993-20": {9007199254740993, 20}, // over 2⁵³
	} {
		got, err := ParseID(s)
		if err != nil || got != want {
			t.Errorf("ParseID(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

// TestParseIDStrict: Redis takes most of these, and a cursor that means
// something else than it says would skip in silence.
func TestParseIDStrict(t *testing.T) {
	for _, s := range []string{
		"", "-", "$", "+", ">", "*", "0", "5", "5-", "-5", "5-*", "00010-0", "10-00", "0-01",
		"+1-0", "1-+0", "--1", "1--1", "1-0-0", " 1-0", "1-0 ", "1 -0", "1-0\n", "\x001-0", "1-0\x00",
		"0x10-0", "1e3-0", "1_000-0", "1.0-0", "१-0", "١-٠", "1\u22120",
		"18446744073709551616-0", "0-18446744073709551616", "99999999999999999999999-0",
		strings.Repeat("1", 1<<20) + "-0",
	} {
		if got, err := ParseID(s); !errors.Is(err, ErrID) || got != (ID{}) {
			t.Errorf("ParseID(%.40q) = %v, %v; want ErrID", s, got, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"0-0", "1700000000000-1", top + "-" + top, "00010-0", "$", "5-*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			if !errors.Is(err, ErrID) || !id.IsZero() {
				t.Fatalf("ParseID(%q) = %v, %v", s, id, err)
			}
			return
		}
		// One text for each ID: what is accepted is canonical.
		if id.String() != s {
			t.Fatalf("ParseID(%q).String() = %q", s, id.String())
		}
	})
}

// ids draws IDs around the corners where arithmetic goes wrong.
func ids() *rapid.Generator[ID] {
	part := rapid.OneOf(
		rapid.Uint64(),
		rapid.Uint64Range(0, 3),
		rapid.Uint64Range(^uint64(0)-3, ^uint64(0)),
	)
	return rapid.Custom(func(t *rapid.T) ID { return ID{part.Draw(t, "ms"), part.Draw(t, "seq")} })
}

// number is an ID as one 128-bit number, whose order is the order of IDs.
func number(id ID) *big.Int {
	n := new(big.Int).SetUint64(id.Ms)
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(id.Seq))
}

func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := ids().Draw(t, "a"), ids().Draw(t, "b")
		c := number(a).Cmp(number(b))
		if a.Compare(b) != c || b.Compare(a) != -c || a.Less(b) != (c < 0) {
			t.Fatalf("%v against %v: %d, %v; want %d", a, b, a.Compare(b), a.Less(b), c)
		}
		want := a
		if c < 0 {
			want = b
		}
		if got := Max(a, b); got != want {
			t.Fatalf("Max(%v, %v) = %v", a, b, got)
		}
	})
}

func TestNextIsTheLowestAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ids().Filter(func(id ID) bool { return id != MaxID }).Draw(t, "id")
		want := new(big.Int).Add(number(id), big.NewInt(1))
		if got := id.Next(); number(got).Cmp(want) != 0 {
			t.Fatalf("%v.Next() = %v", id, got)
		}
	})
	if got := MaxID.Next(); got != MaxID {
		t.Errorf("MaxID.Next() = %v", got)
	}
}

func TestIDText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ids().Draw(t, "id")
		if got, err := ParseID(id.String()); err != nil || got != id {
			t.Fatalf("ParseID(%q) = %v, %v", id, got, err)
		}
		text, err := json.Marshal(id)
		if err != nil || string(text) != `"`+id.String()+`"` {
			t.Fatalf("in JSON %s, %v", text, err)
		}
		var back ID
		if err := json.Unmarshal(text, &back); err != nil || back != id {
			t.Fatalf("from JSON %v, %v", back, err)
		}
	})
	id := ID{7, 7}
	if err := json.Unmarshal([]byte(`"$"`), &id); !errors.Is(err, ErrID) || id != (ID{7, 7}) {
		t.Errorf("a bad text: %v, ID %v; want ErrID and the old ID", err, id)
	}
	if !(ID{}).IsZero() || (ID{0, 1}).IsZero() || (ID{1, 0}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestIDDoesntAllocate(t *testing.T) {
	buffer := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { MaxID.Append(buffer) }); n != 0 {
		t.Errorf("Append: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = ParseID("1700000000000-12") }); n != 0 {
		t.Errorf("ParseID: %v allocations", n)
	}
}
