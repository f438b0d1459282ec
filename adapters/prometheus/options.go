package promgate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Option changes how the metrics are named.
type Option func(*config)

type config struct {
	namespace  string
	subsystems Subsystems
	labels     prometheus.Labels
}

// Subsystems are the second parts of the metrics' names, by gate. An empty one is the
// default.
type Subsystems struct {
	Admission string // default "admission"
	Pressure  string // default "pressure"
	Lanes     string // default "lanes"
	Outbound  string // default "outbound"
}

// WithNamespace sets the first part of all names. Default "headgate". What may not stand
// in a name becomes "_", and one that begins with a digit gets a "_" before it: "my-agent"
// is my_agent. With "" names begin with the subsystem.
func WithNamespace(name string) Option {
	return func(c *config) { c.namespace = sanitized(name) }
}

// WithSubsystems renames subsystems. What may not stand in a name becomes "_", as in a
// namespace. Two gates of one name are an error of New.
func WithSubsystems(s Subsystems) Option {
	return func(c *config) {
		c.subsystems = Subsystems{
			Admission: cmp.Or(sanitized(s.Admission), c.subsystems.Admission),
			Pressure:  cmp.Or(sanitized(s.Pressure), c.subsystems.Pressure),
			Lanes:     cmp.Or(sanitized(s.Lanes), c.subsystems.Lanes),
			Outbound:  cmp.Or(sanitized(s.Outbound), c.subsystems.Outbound),
		}
	}
}

// WithConstLabels gives every series these labels too. Two Headgates of one registry need
// different ones. Default none. A name that is none, or that a metric has already ("lane"
// or "le", for example), and a value that is no UTF-8 are errors of New.
func WithConstLabels(labels prometheus.Labels) Option {
	labels = maps.Clone(labels)
	return func(c *config) { c.labels = labels }
}

// validate is the error of labels that no metric could have, or nil. Later versions of the
// client let more names pass, which not every server understands.
func (c *config) validate() error {
	for _, name := range slices.Sorted(maps.Keys(c.labels)) {
		switch {
		case name == "" || sanitized(name) != name || strings.HasPrefix(name, "__"):
			return fmt.Errorf("promgate: WithConstLabels: %.40q is no label's name: want letters, digits and _, no digit and no __ first", name)
		case name == "le": // nobody else would notice before the scrapes fail
			return errors.New("promgate: WithConstLabels: the buckets of histograms have a label le already")
		case !utf8.ValidString(c.labels[name]):
			return fmt.Errorf("promgate: WithConstLabels: the value of %s is no UTF-8", name)
		}
	}
	return nil
}

func defaults() config {
	return config{
		namespace:  "headgate",
		subsystems: Subsystems{Admission: "admission", Pressure: "pressure", Lanes: "lanes", Outbound: "outbound"},
	}
}

// sanitized is a text that may begin a metric's name.
func sanitized(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, s)
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		return "_" + s
	}
	return s
}
