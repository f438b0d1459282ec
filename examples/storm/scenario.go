package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// scenario is a load and the configuration that meets it. A new one is a file with
// a function that returns it, and a line in scenarios.
type scenario struct {
	name  string
	about string
	// length is how long requests arrive unless -duration says otherwise.
	length time.Duration
	// config is the YAML of the app with headgate.
	config string
	// plan makes the requests, in any order. The same r makes the same plan.
	plan func(r *rand.Rand, length time.Duration) []call
	// sizes and hold stand in for what a trace does not have.
	sizes sizes
	hold  time.Duration
}

// scenarios are all there are.
func scenarios() []scenario {
	return []scenario{bodies()}
}

func find(name string) (scenario, error) {
	for _, s := range scenarios() {
		if s.name == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("-scenario is %q: want %s", name, names())
}

func names() string {
	var all []string
	for _, s := range scenarios() {
		all = append(all, s.name)
	}
	return strings.Join(all, ", ")
}
