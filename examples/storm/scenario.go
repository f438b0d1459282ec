package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// scenario is a load and the configuration that meets it. A new one is a file with
// a function that returns it, and a line in scenarios.
type scenario struct {
	name  string
	about string
	// length is how long requests arrive unless -duration says otherwise, 0 = at one moment.
	length time.Duration
	// config is the YAML of the app with headgate.
	config string
	// lanesOff is the YAML of the app in the first row where that is not bare: it has
	// headgate too, with its lanes off. "" = it is bare.
	lanesOff string
	// wait is how long a request may wait at another library's limit: as long as the
	// config lets it wait at headgate's.
	wait time.Duration
	// limit is how many requests another library lets in at once, where the scenario is
	// not about bytes; 0 = as many as have room in headgate's budget.
	limit int
	// plan makes the requests, in any order. The same r makes the same plan.
	plan func(r *rand.Rand, length time.Duration) []call
	// columns are those of its table, nil = of one about bodies.
	columns func(peers bool) []column
	// backEnd is what the app calls, nil = nothing. Other libraries do not play where there
	// is one: they limit what comes in, not what goes out.
	backEnd *backEnd
	// virtual: a trace of arrival laws is drawn, and played in virtual time. See scenario_trace.go.
	virtual bool
	// sizes and hold stand in for what a trace does not have.
	sizes sizes
	hold  time.Duration
}

// scenarios are all there are, in the order in which -scenario all plays them.
func scenarios() []scenario {
	return []scenario{bodies(), memoryStorm(), retry(), tenantStorm(), traceStorm()}
}

// everything is the name that stands for all scenarios.
const everything = "all"

// find returns the scenarios that a name stands for; traced says that there is a trace, without
// which all are those that need none. The error lists the names.
func find(name string, traced bool) ([]scenario, error) {
	if name == everything {
		return slices.DeleteFunc(scenarios(), func(s scenario) bool { return s.virtual && !traced }), nil
	}
	for _, s := range scenarios() {
		if s.name == name {
			return []scenario{s}, nil
		}
	}
	return nil, fmt.Errorf("-scenario is %q: want %s", name, names())
}

func names() string {
	var all []string
	for _, s := range scenarios() {
		all = append(all, s.name)
	}
	return strings.Join(all, ", ") + ", or " + everything
}
