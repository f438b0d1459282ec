package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate-go/headgate/core/gate"
)

// The routes that have a choice of models: one for the first that answers, one for all
// that have room. Their errors have OpenAI's shape.
var (
	comboAPI  = api{"/v1/combo", gate.OpenAI}  //nolint:gochecknoglobals // never written
	fusionAPI = api{"/v1/fusion", gate.OpenAI} //nolint:gochecknoglobals // never written
)

const (
	// fallbackHeader says how many targets were passed over before the one that answered.
	fallbackHeader = "Headgate-Fallback-Count"
	// maxTargets is how many models a call may name.
	maxTargets = 16
)

// What a combo's strategy may be.
const (
	byPriority = "priority"    // in the order given
	inTurn     = "round_robin" // each call of a tenant to the same targets begins one further on
)

// fanout is what the body of POST /v1/combo and POST /v1/fusion holds.
type fanout struct {
	Targets  []string // models
	Strategy string
	Prompt   string
}

// fusionAnswer is what a fusion answers: a result for each target, in their order.
type fusionAnswer struct {
	Succeeded int            `json:"succeeded"`
	Failed    int            `json:"failed"`
	Skipped   int            `json:"skipped"`
	Results   []fusionResult `json:"results"`
}

type fusionResult struct {
	Target  string `json:"target"`
	Skipped bool   `json:"skipped,omitempty"` // its lane had no room, so it was not called
	batchResult
}

// combos calls the targets one after another until one answers. A target whose lane has
// no room is not called; one that is refused here, fails or is overloaded is passed over.
func (g *gateway) combos(refuse func(http.ResponseWriter, *http.Request, error) bool) http.Handler {
	return g.fansOut(comboAPI, refuse, func(w http.ResponseWriter, r *http.Request, f fanout, q prompt) {
		ctx := g.beside(r.Context())
		passed := 0
		var last *batchResult
		for _, target := range g.order(r.Context(), f) {
			if !g.room(r.Context(), q.price(target))[0] {
				passed++
				continue
			}
			result := g.complete(ctx, r, 0, q.to(target))
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client has left: nobody reads an answer
			}
			if last = &result; !passOver(result) {
				break
			}
			passed++
		}
		switch {
		case last == nil:
			refuse(w, r, g.hg.Tenants.NoTarget(r.Context(), f.prices(q)...))
		case passed == len(f.Targets):
			last.answer(w)
		default:
			w.Header().Set(fallbackHeader, strconv.Itoa(passed))
			last.answer(w)
		}
	})
}

// fusions calls all targets that have room at once, asked for as one set.
func (g *gateway) fusions(refuse func(http.ResponseWriter, *http.Request, error) bool) http.Handler {
	return g.fansOut(fusionAPI, refuse, func(w http.ResponseWriter, r *http.Request, f fanout, q prompt) {
		ctx := g.beside(r.Context())
		answer := fusionAnswer{Results: make([]fusionResult, len(f.Targets))}
		prices := f.prices(q)
		room := g.room(r.Context(), prices...)
		if !slices.Contains(room, true) {
			refuse(w, r, g.hg.Tenants.NoTarget(r.Context(), prices...))
			return
		}
		var calls sync.WaitGroup
		for i, target := range f.Targets {
			answer.Results[i] = fusionResult{Target: target, Skipped: !room[i], batchResult: batchResult{Index: i}}
			if room[i] {
				calls.Go(func() { answer.Results[i].batchResult = g.complete(ctx, r, i, q.to(target)) })
			}
		}
		calls.Wait()
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client has left: nobody reads an answer
		}
		answer.write(w)
	})
}

// fansOut reads and checks the body of a fan-out and asks the tenant's lane for it, at the
// price of its dearest target: so one that was let in has room for any of them, and the
// others are asked for by room. Its bytes are held until the answer.
func (g *gateway) fansOut(
	a api, refuse func(http.ResponseWriter, *http.Request, error) bool, do func(http.ResponseWriter, *http.Request, fanout, prompt),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := wholeBody(a, w, r, refuse)
		if !ok {
			return
		}
		f, p := parseFanout(a, text)
		if p != nil {
			writeJSON(w, p.status, a.shape(*p))
			return
		}
		q := newPrompt(f.Prompt)
		r, leave, ok := g.enter(a, w, r, gate.Request{Cost: slices.Max(f.prices(q))}, refuse)
		if !ok {
			return
		}
		defer leave()
		do(w, r, f, q)
	})
}

// prices is what the calls to the targets cost in the tenant's lane.
func (f *fanout) prices(q prompt) []int64 {
	prices := make([]int64, len(f.Targets))
	for i, target := range f.Targets {
		prices[i] = q.price(target)
	}
	return prices
}

// parseFanout returns the fan-out that text holds, or what is wrong with it.
func parseFanout(a api, text []byte) (fanout, *problem) {
	var in struct {
		Targets  [maxTargets + 1]json.RawMessage `json:"targets"`
		Strategy string                          `json:"strategy"`
		Prompt   string                          `json:"prompt"`
	}
	f, err := fanout{}, decodeObject(text, &in)
	if err == nil {
		f.Strategy, f.Prompt = in.Strategy, in.Prompt
		f.Targets, err = listed("targets", in.Targets[:])
	}
	if f.Strategy == "" && a == comboAPI {
		f.Strategy = byPriority
	}
	var wrong string
	switch n := len(f.Targets); {
	case err != nil:
		return f, &problem{http.StatusBadRequest, "invalid_json", `want {"targets": ["...", ...], "prompt": "..."}: ` + jsonFault(err)}
	case n == 0:
		wrong = fmt.Sprintf("targets is empty: want 1 to %d", maxTargets)
	case n > maxTargets:
		wrong = fmt.Sprintf("targets has more than %d entries", maxTargets)
	case slices.Contains(f.Targets, ""):
		wrong = "targets has an empty entry: want names of models"
	case slices.ContainsFunc(f.Targets, func(model string) bool { return len(model) > maxModel }):
		wrong = fmt.Sprintf("targets has an entry of more than %d bytes: want names of models", maxModel)
	case a == comboAPI && f.Strategy != byPriority && f.Strategy != inTurn:
		wrong = fmt.Sprintf("strategy is %.40q: want %s or %s", f.Strategy, byPriority, inTurn)
	case a == fusionAPI && f.Strategy != "":
		wrong = "strategy is for " + comboAPI.path + ": all targets that have room are called here"
	default:
		return f, nil
	}
	return f, &problem{http.StatusUnprocessableEntity, "invalid_targets", wrong}
}

// order is the order in which a combo tries its targets.
func (g *gateway) order(ctx context.Context, f fanout) []string {
	if f.Strategy != inTurn {
		return f.Targets
	}
	flow, _ := gate.FlowOf(ctx)
	first := g.turns.next(flow, f.Targets)
	return append(slices.Clone(f.Targets[first:]), f.Targets[:first]...)
}

// room asks for each price whether the tenant's lane would take a call that costs it now.
func (g *gateway) room(ctx context.Context, prices ...int64) []bool {
	if g.hg == nil {
		return slices.Repeat([]bool{true}, len(prices))
	}
	return g.hg.Tenants.Probe(ctx, prices...)
}

// passOver reports whether another target may do better.
func passOver(r batchResult) bool {
	return r.Error != nil && (r.Reason != "" || r.Status == http.StatusTooManyRequests || r.Status >= 500)
}

// answer answers with one result alone, as a call of its own would.
func (r *batchResult) answer(w http.ResponseWriter) {
	if r.Reason != "" {
		w.Header().Set(gate.MarkerHeader, string(r.Reason))
		if r.RetryAfterS > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(r.RetryAfterS, 10))
		}
	}
	if r.Error != nil {
		writeJSON(w, r.Status, map[string]json.RawMessage{"error": r.Error})
		return
	}
	writeJSON(w, r.Status, r.Response)
}

// write answers as a batch of those that were called does.
func (f *fusionAnswer) write(w http.ResponseWriter) {
	var called []batchResult
	for _, r := range f.Results {
		if r.Skipped {
			f.Skipped++
		} else {
			called = append(called, r.batchResult)
		}
	}
	var status int
	f.Succeeded, f.Failed, status = together(w.Header(), called)
	writeJSON(w, status, f)
}
