package throttle

import "testing"

// Whatever is answered, a ratio is one, and a maximum isn't negative.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"levers":[{"name":"admission","ratio":0.5,"maximum":10}]}`, `{"levers":[{"name":"admission","ratio":1e-400}]}`,
		`{"levers":[{"name":"admission","ratio":null},{"name":"admission","ratio":1}]}`, `[]`, `{"levers":{}}`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := read(body, DefaultLever)
		if err == nil && !(s.Ratio > 0 && s.Ratio <= 1 && s.Maximum >= 0 && len(s.Why) < 1100 && len(s.Unit) < 1100) {
			t.Errorf("%+v", s)
		}
	})
}
