package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"reflect"
	"slices"

	"downlink/internal/governor"
	"downlink/internal/problem"
)

// maxPatchBytes of a request: room for all settings many times over.
const maxPatchBytes = 64 << 10

// Changed is one setting whose value isn't what another place, or an earlier moment,
// says. Its name has dots.
type Changed struct {
	Name   string `json:"name"`
	Before any    `json:"before"`
	After  any    `json:"after"`
}

// Patch serves PATCH Path: all of it counts at once, or nothing.
func (h *Handlers) Patch(w http.ResponseWriter, r *http.Request) {
	v, fault := h.patch(w, r)
	if fault != nil {
		problem.Write(w, fault)
		return
	}
	answer(w, v)
}

func (h *Handlers) patch(w http.ResponseWriter, r *http.Request) (View, *problem.Document) {
	body, fault := h.read(w, r)
	if fault != nil {
		return View{}, fault
	}
	change, err := governor.Patch(body)
	if err != nil {
		return View{}, refusal(err)
	}
	g := h.opts.Governor()
	if g == nil {
		return View{}, notYet()
	}
	h.patching.Lock()
	defer h.patching.Unlock()
	before := h.settings(g.Settings())
	if err := h.apply(g, change); err != nil {
		return View{}, refusal(err)
	}
	v := h.view(g)
	v.Changed = differences(before, v.Settings)
	return v, nil
}

const adviseBody = `Send Content-Type: application/json and an object such as {"step": 0.2, "signals": {"redis_memory": {"threshold": 0.7}}}.`

// read reads the body of a PATCH. A browser sends none of its type across sites
// without asking first.
func (h *Handlers) read(w http.ResponseWriter, r *http.Request) ([]byte, *problem.Document) {
	if h.cross.Check(r) != nil {
		return nil, problem.New(problem.CrossOrigin, "a page of another origin sent it")
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && media != "application/merge-patch+json" || r.Header.Get("Content-Encoding") != "" {
		return nil, problem.New(problem.UnsupportedMedia, "the governor is changed with Content-Type: application/json").Advise(adviseBody)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPatchBytes))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(problem.BodyTooLarge, fmt.Sprintf("it has more than %d bytes", large.Limit)).Advise(adviseBody)
	}
	if err != nil {
		return nil, problem.New(problem.RequestTimeout, "the body broke off")
	}
	if !json.Valid(body) {
		return nil, problem.New(problem.InvalidJSON, "the body isn't one JSON object").Advise(adviseBody)
	}
	return body, nil
}

// named is how many mistakes an answer names: more than there are settings.
const named = 100

func refusal(err error) *problem.Document {
	if fault, ok := errors.AsType[*problem.Document](err); ok {
		return fault
	}
	if faults, ok := errors.AsType[governor.Faults](err); ok && len(faults) > 0 {
		text := faults[:min(len(faults), named)].Error()
		if more := len(faults) - named; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		return problem.New(problem.InvalidSetting, text).At(faults[0].Name)
	}
	return problem.New(problem.Internal, err.Error())
}

// apply changes the governor, and the floor where that is kept.
func (h *Handlers) apply(g *governor.Governor, change func(*governor.Settings) error) error {
	floor, named, err := h.floor(g, change)
	if err != nil {
		return err
	}
	if !named {
		_, err := g.Apply(change)
		return err
	}
	if _, err := g.Apply(func(s *governor.Settings) error {
		own := s.Floor // which nobody reads
		err := change(s)
		s.Floor = own
		return err
	}); err != nil {
		return err
	}
	before := h.opts.Floor.Get()
	if err := h.opts.Floor.Set(floor); err != nil {
		return err
	}
	if floor != before { // as the governor logs what it keeps itself
		h.opts.Logger.Info("a setting of the governor was changed", "setting", "floor", "now", floor)
	}
	_, err = g.Apply(func(*governor.Settings) error { return nil }) // a higher floor lifts at once
	return err
}

// floor is the one that a change names, if it is kept elsewhere. With one that can't
// be, the error holds all that is wrong with the change, and nothing has changed.
func (h *Handlers) floor(g *governor.Governor, change func(*governor.Settings) error) (part float64, named bool, err error) {
	if h.opts.Floor == nil {
		return 0, false, nil
	}
	s := g.Settings()
	s.Floor = math.NaN() // which JSON doesn't have
	if err := change(&s); err != nil {
		return 0, false, err
	}
	if math.IsNaN(s.Floor) {
		return 0, false, nil
	}
	reason := h.opts.Floor.Refuse(s.Floor)
	if reason == "" {
		return s.Floor, true, nil
	}
	_, err = g.Apply(func(all *governor.Settings) error {
		err := change(all)
		all.Floor = math.NaN() // which no governor takes
		return err
	})
	faults, _ := errors.AsType[governor.Faults](err)
	for i := range faults {
		if faults[i].Name == "floor" {
			faults[i].Reason = reason
		}
	}
	return 0, false, err
}

// differences are the settings that have changed, in order of their names.
func differences(before, after governor.Settings) (all []Changed) {
	was, is := Flat(before), Flat(after)
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !reflect.DeepEqual(was[name], is[name]) {
			all = append(all, Changed{name, was[name], is[name]})
		}
	}
	return all
}

// Flat are settings by their names with dots, with values as they stand in JSON.
func Flat(s governor.Settings) map[string]any {
	text, _ := json.Marshal(s)
	var tree map[string]any
	_ = json.Unmarshal(text, &tree) // settings that count can be written and read
	into := make(map[string]any)
	flatten(into, "", tree)
	return into
}

func flatten(into map[string]any, at string, tree map[string]any) {
	for name, v := range tree {
		if inner, ok := v.(map[string]any); ok {
			flatten(into, at+name+".", inner)
			continue
		}
		into[at+name] = v
	}
}
