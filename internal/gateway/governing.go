package gateway

import (
	"fmt"
	"math"
	"net/http"

	"downlink/internal/console"
	"downlink/internal/governor"
	"downlink/internal/governor/api"
	"downlink/internal/limits"
	"downlink/internal/server"
)

// showGovernor makes the handlers that show and change the flow's governor. Its floor is a
// limit: it is kept where limits are.
func (g *base) showGovernor() *api.Handlers {
	all := g.opts.Limits
	h := api.New(api.Options{
		Governor: func() *governor.Governor {
			if f := g.flow.Load(); f != nil {
				return f.governor
			}
			return nil
		},
		Floor: &api.Floor{
			Get:    func() float64 { return float64(all.Value(governorFloor)()) / 100 },
			Refuse: refuseFloor,
			Set: func(part float64) error {
				percent := inPercent(part)
				_, _, err := all.Patch([]limits.Wish{{Name: governorFloor, Value: &percent}})
				return err
			},
		},
		Stay:   stay,
		Logger: g.opts.Logger.With("part", "governor"),
	})
	all.Uses(governorFollowers, func() float64 { return float64(h.Following()) })
	return h
}

// refuseFloor says why a floor can't be governor_floor.
func refuseFloor(part float64) string {
	percent := inPercent(part)
	if percent < 1 || percent > 100 || math.Abs(part*100-float64(percent)) > 1e-9 {
		return fmt.Sprintf("can't be %v: here it is the limit %s, in whole percent; allowed: 0.01, 0.02, … to 1", part, governorFloor)
	}
	return ""
}

func inPercent(part float64) int64 { return int64(math.Round(min(max(part, -1), 2) * 100)) }

// governorRoutes are how the governor is seen and changed. The page is for everybody:
// what it shows it asks for, as who reads it.
func (g *base) governorRoutes() []server.Route {
	h := g.governing
	return []server.Route{
		{Method: http.MethodGet, Path: api.Path, Handler: g.asks(http.HandlerFunc(h.Show))},
		{Method: http.MethodPatch, Path: api.Path, Handler: g.admin(http.HandlerFunc(h.Patch))},
		{Method: http.MethodGet, Path: api.EventsPath, Handler: g.asks(http.HandlerFunc(h.Follow))},
		{Method: http.MethodGet, Path: console.Path, Handler: console.Handler()},
	}
}
