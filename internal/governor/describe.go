package governor

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A Description is what one setting does, in the words of the reference.
type Description struct {
	Name    string // as in JSON, with dots: signals.redis_memory.threshold
	Help    string // what it is, in sentences
	Allowed string // "0.01 to 0.9", where an end may name another setting
	Default string // as in JSON
}

// Describe says of each setting of a governor that has these signals what it does;
// those of one signal stand together.
func Describe(signals []Signal) []Description {
	all := []Description{
		{Name: "on", Allowed: "true or false", Help: "false opens every lever at once, and moves none. The signals are read and shown all the same, and downlink_governor_on is 0."},
		{Name: "step", Allowed: "0.01 to 0.9", Help: "By which part a lever falls while a signal is over its threshold: of what is let in, or of what is in use if that is less. More mends faster, and holds back more than needed."},
		{Name: "period", Allowed: "1s to 24h", Help: "Between two falls. Less acts before it shows what the last fall has done."},
		{Name: "fast_step", Allowed: "step to 0.9", Help: "By which part a lever falls at a signal's wall, or on the way to it."},
		{Name: "fast_period", Allowed: "1s to 24h", Help: "Between two falls at the wall, or on the way to it."},
		{Name: "brake", Allowed: "0s to 24h", Help: "How long before the wall would be reached, as fast as the signal rises, a lever falls as at the wall. More stops a filling Redis earlier, and takes a short rush for one more often."},
		{Name: "recover", Allowed: "0s to 24h", Help: "A signal over its threshold that goes down, and will be under it in so long, makes no lever fall: it is what an outage has left behind, or what earlier falls have mended."},
		{Name: "calm", Allowed: "1s to 24h", Help: "For how long all signals of a lever must have been good before it rises."},
		{Name: "rise_step", Allowed: "0.001 to step", Help: "By which part of what is configured a lever rises; never by more than step of what it lets in."},
		{Name: "rise_period", Allowed: "1s to 24h", Help: "Between two rises. Longer than period, or with a smaller step, a lever rises more slowly than it falls, as it should."},
		{Name: "floor", Allowed: "0.001 to 1", Help: "No lever falls below it; 1 means that nothing is ever lowered. In a gateway the limit governor_floor (percent) counts in its place."},
		{Name: "good", Allowed: "0.1 to 1", Help: "Up to which part of its threshold a signal is good. Between there and the threshold a lever stays where it is; the less room there is, the more it goes up and down."},
		{Name: "hesitance", Allowed: "1 to 1000", Help: "A lever that has to fall again from where it had just risen to waits twice as long each time before it tries that anew, up to so many times calm."},
	}
	for _, s := range signals {
		at := signalsName + "." + s.Probe.Name() + "."
		threshold, wall := "0 or more", "0, or more than the threshold"
		if s.Unit == ratioUnit {
			threshold, wall = "0 to 1", "0, or more than the threshold, up to 1"
		}
		all = append(all,
			Description{Name: at + "threshold", Allowed: threshold, Help: "From which value on the levers fall (" + s.Unit + "); 0: the signal is shown, and moves nothing."},
			Description{Name: at + "wall", Allowed: wall, Help: "From which value on they fall fast (" + s.Unit + "); 0: there is none."},
			Description{Name: at + "levers", Allowed: "a list of " + Admission + ", " + Publish, Help: "Which levers it moves. An empty list: none."},
		)
	}
	defaults := written(Defaults(signals))
	for i := range all {
		all[i].Default = defaults[all[i].Name]
	}
	return all
}

// written is each setting as it stands in JSON, by its name.
func written(s Settings) map[string]string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("governor: its own settings can't be written: %v", err)) // a field of a new kind
	}
	entries, _ := flatten(text)
	all := make(map[string]string, len(entries))
	for _, e := range entries {
		all[e.path()] = strings.ReplaceAll(string(e.value), ",", ", ")
	}
	return all
}
