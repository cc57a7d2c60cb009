package governor

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Patch reads a change of settings, as it is given to Apply and Load: a JSON object
// in the form of Settings that holds what is to change. What it doesn't name stays,
// also within one of its signals; a list of levers is replaced. Names are compared
// exactly, none may stand twice, and null isn't a value. The error is Faults, all of
// them; whether values fit together is seen only where they are applied.
func Patch(raw []byte) (func(*Settings) error, error) {
	entries, faults := flatten(raw)
	if len(faults) == 0 {
		faults = assign(&Settings{}, entries)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return func(s *Settings) error {
		if faults := assign(s, entries); len(faults) > 0 {
			return faults
		}
		return nil
	}, nil
}

// An entry is one setting and its value.
type entry struct {
	signal string // "": it is the governor's own
	name   string
	value  json.RawMessage
}

// path is the name that people read and write.
func (e entry) path() string {
	if e.signal == "" {
		return e.name
	}
	return signalsName + "." + e.signal + "." + e.name
}

const signalsName = "signals"

// flatten lists the settings in a JSON object.
func flatten(raw []byte) (all []entry, faults Faults) {
	members, faults := object(raw, "")
	for _, m := range members {
		if m.name != signalsName {
			all = append(all, m)
			continue
		}
		signals, wrong := object(m.value, signalsName)
		faults = append(faults, wrong...)
		for _, s := range signals {
			of, wrong := object(s.value, signalsName+"."+s.name)
			faults = append(faults, wrong...)
			for _, one := range of {
				one.signal = s.name
				all = append(all, one)
			}
		}
	}
	return all, faults
}

// object lists the members of a JSON object that stands at a path.
func object(raw []byte, at string) (members []entry, faults Faults) {
	if !json.Valid(raw) || bytes.TrimLeft(raw, " \t\r\n")[0] != '{' {
		if at == "" {
			return nil, Faults{{"settings", "aren't one JSON object"}}
		}
		return nil, Faults{{clip(at), "must be a JSON object"}}
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	_, _ = in.Token() // the brace; valid JSON has no errors
	seen := make(map[string]bool)
	for in.More() {
		token, _ := in.Token()
		e := entry{}
		e.name, _ = token.(string)
		_ = in.Decode(&e.value)
		if seen[e.name] {
			faults = append(faults, Fault{clip(strings.TrimPrefix(at+"."+e.name, ".")), "stands there twice"})
			continue
		}
		seen[e.name] = true
		members = append(members, e)
	}
	return members, faults
}

// assign sets what the entries say. With faults a part of them is set.
func assign(s *Settings, entries []entry) (faults Faults) {
	own := s.fields()
	for _, e := range entries {
		fields, of := own, SignalSettings{}
		if e.signal != "" {
			of = s.Signals[e.signal]
			fields = of.fields()
		}
		into, known := fields[e.name]
		if levers, ok := into.(*[]string); ok {
			*levers = nil // else a null in the list would leave what stood there
		}
		switch {
		case !known:
			faults = append(faults, Fault{clip(e.path()), "is no setting; GET the settings for those that are"})
			continue
		case string(e.value) == "null" || json.Unmarshal(e.value, into) != nil:
			faults = append(faults, Fault{clip(e.path()), "must be " + kind(into)})
			continue
		}
		if e.signal != "" {
			if s.Signals == nil {
				s.Signals = make(map[string]SignalSettings)
			}
			s.Signals[e.signal] = of
		}
	}
	return faults
}

// fields are where the settings are kept, by their names.
func (s *Settings) fields() map[string]any {
	return map[string]any{
		"on": &s.On, "step": &s.Step, "period": &s.Period, "fast_step": &s.FastStep, "fast_period": &s.FastPeriod,
		"brake": &s.Brake, "recover": &s.Recover, "calm": &s.Calm, "rise_step": &s.RiseStep, "rise_period": &s.RisePeriod,
		"floor": &s.Floor, "good": &s.Good, "hesitance": &s.Hesitance,
	}
}

func (g *SignalSettings) fields() map[string]any {
	return map[string]any{"threshold": &g.Threshold, "wall": &g.Wall, "levers": &g.Levers}
}

// kind says what a field takes.
func kind(field any) string {
	switch field.(type) {
	case *bool:
		return "true or false"
	case *int:
		return "a whole number"
	case *Duration:
		return `a duration such as "30s" or "2m"`
	case *[]string:
		return `a list of levers such as ["publish"]`
	}
	return "a number"
}

// clip keeps what somebody sent from filling a log.
func clip(name string) string {
	const most = 80
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}
