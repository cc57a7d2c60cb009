package backoff

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDelayBounds(t *testing.T) {
	tests := []struct {
		name  string
		b     Backoff
		n     int
		bound time.Duration
	}{
		{"first", Backoff{time.Second, time.Minute}, 0, time.Second},
		{"doubles", Backoff{time.Second, time.Minute}, 3, 8 * time.Second},
		{"capped", Backoff{time.Second, time.Minute}, 6, time.Minute},
		{"far", Backoff{time.Second, time.Minute}, math.MaxInt, time.Minute},
		{"negative attempt", Backoff{time.Second, time.Minute}, -5, time.Second},
		{"max under base", Backoff{time.Second, time.Millisecond}, 4, time.Second},
		{"zero value", Backoff{}, 10, 1},
		{"no overflow", Backoff{math.MaxInt64/2 + 1, math.MaxInt64}, 5, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.b.bound(tt.n); got != tt.bound {
				t.Fatalf("bound(%d) = %v, want %v", tt.n, got, tt.bound)
			}
			for range 200 {
				if d := tt.b.Delay(tt.n); d <= 0 || d > tt.bound {
					t.Fatalf("Delay(%d) = %v, want in (0, %v]", tt.n, d, tt.bound)
				}
			}
		})
	}
}

// TestDelayIsFullJitter fails for a delay that only wobbles around its bound.
func TestDelayIsFullJitter(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Second}
	var low, high int
	for range 1000 {
		if b.Delay(0) <= time.Second/2 {
			low++
		} else {
			high++
		}
	}
	if low < 300 || high < 300 {
		t.Fatalf("%d delays in the lower half and %d in the upper one, want about as many", low, high)
	}
}

func TestJitterBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64().Draw(t, "d"))
		f := rapid.Float64().Draw(t, "fraction")
		got := Jitter(d, f)
		if got < 0 {
			t.Fatalf("Jitter(%v, %v) = %v is negative", d, f, got)
		}
		d, f = max(d, 0), min(max(f, 0), 1)
		low, high := float64(d)*(1-f), float64(d)*(1+f)
		if slack := 1 + float64(d)*1e-15; float64(got) < low-slack || float64(got) > high+slack {
			t.Fatalf("Jitter(%d, %v) = %d, want in [%v, %v]", d, f, got, low, high)
		}
	})
}

func TestJitterEdges(t *testing.T) {
	if got := Jitter(time.Second, 0); got != time.Second {
		t.Errorf("without a fraction: %v, want 1s", got)
	}
	if got := Jitter(time.Second, math.NaN()); got != time.Second {
		t.Errorf("with NaN: %v, want 1s", got)
	}
	if got := Jitter(-time.Second, 0.5); got != 0 {
		t.Errorf("of a negative duration: %v, want 0", got)
	}
	seen := map[time.Duration]bool{}
	for range 50 {
		seen[Jitter(time.Second, 0.2)] = true
	}
	if len(seen) < 25 {
		t.Errorf("50 calls gave only %d different delays", len(seen))
	}
}

// TestJitterOfTheLongest covers the sums that would overflow.
func TestJitterOfTheLongest(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for _, f := range []float64{0, 1e-300, 1e-10, 0.5, 1, math.Inf(1)} {
		if got := Jitter(longest, f); got < 0 {
			t.Errorf("Jitter(longest, %v) = %v is negative", f, got)
		}
	}
}
