package headgate

import (
	"encoding"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// ConfigFromEnv returns c with what the environment sets. getenv is os.Getenv, or
// stands for it; a variable that is "" is not set. The error names the variable
// and its value, of which it repeats 40 characters at most; a c that is out of
// range to begin with is Validate's error. On an error c is returned unchanged.
// Durations are in Go's syntax ("1m30s"), sizes in bytes or with a unit ("64MiB"),
// and -1 is Auto where the field knows it.
//
//	HEADGATE_MAX_INFLIGHT_BYTES           Admission.MaxInflightBytes
//	HEADGATE_MAX_HEAVY_IN_FLIGHT          Admission.MaxHeavyInFlight
//	HEADGATE_ADMISSION_QUEUE_TIMEOUT      Admission.QueueTimeout
//	HEADGATE_ADMISSION_MAX_QUEUED_BYTES   Admission.MaxQueuedBytes
//	HEADGATE_HEAVY_BYTES                  Admission.HeavyBytes
//	HEADGATE_HARD_MAX_BODY_BYTES          Admission.HardMaxBodyBytes
//	HEADGATE_HEALTHY_HEADROOM             Admission.HealthyHeadroom
//	HEADGATE_HEAP_SHED_RATIO              Admission.HeapShedRatio
//	HEADGATE_LANES_MODE                   Lanes.Mode
//	HEADGATE_VIRTUAL_LANES                Lanes.VirtualLanes
//	HEADGATE_LANES_ALGORITHM              Lanes.Algorithm
//	HEADGATE_LANES_MIN_LIMIT              Lanes.MinLimit
//	HEADGATE_LANES_INITIAL_LIMIT          Lanes.InitialLimit
//	HEADGATE_LANES_MAX_LIMIT              Lanes.MaxLimit
//	HEADGATE_LANES_MAX_QUEUE_COUNT        Lanes.MaxQueueCount
//	HEADGATE_LANES_MAX_QUEUE_COST         Lanes.MaxQueueCost
//	HEADGATE_LANES_MAX_WAIT               Lanes.MaxWait
//	HEADGATE_LANES_MAX_LANES              Lanes.MaxLanes
//	HEADGATE_MAX_INFLIGHT                 Inflight.MaxInflight
//	HEADGATE_INFLIGHT_QUEUE_TIMEOUT       Inflight.QueueTimeout
//	HEADGATE_INFLIGHT_INTERACTIVE_RESERVE Inflight.InteractiveReserve
func ConfigFromEnv(c Config, getenv func(string) string) (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err // no variable is to blame
	}
	next := c
	set, err := next.setFromEnv(getenv)
	if err != nil {
		return c, err
	}
	if err := next.Validate(); err != nil {
		return c, blame(c, set, err)
	}
	return next, nil
}

// blame says which of the variables makes c what err says. Fields bound each other, so it
// is one without which all is well, else the first with which it is not.
func blame(c Config, set []variable, err error) error {
	with := func(use func(i int) bool) error {
		next := c
		for i, v := range set {
			if use(i) {
				_ = parse(v.text, v.field(&next)) // it could be parsed before
			}
		}
		return next.Validate()
	}
	culprit := func(v variable, err error) error { return fmt.Errorf("%s is %.40q: %w", v.name, v.text, err) }
	for i, v := range set {
		if with(func(j int) bool { return j != i }) == nil {
			return culprit(v, err)
		}
	}
	for i, v := range set {
		if err := with(func(j int) bool { return j <= i }); err != nil {
			return culprit(v, err)
		}
	}
	return err
}

// variable is one that sets a field.
type variable struct {
	name  string
	field func(*Config) any
	text  string
}

// variables are all there are.
func variables() []variable {
	return []variable{
		{name: "HEADGATE_MAX_INFLIGHT_BYTES", field: func(c *Config) any { return &c.Admission.MaxInflightBytes }},
		{name: "HEADGATE_MAX_HEAVY_IN_FLIGHT", field: func(c *Config) any { return &c.Admission.MaxHeavyInFlight }},
		{name: "HEADGATE_ADMISSION_QUEUE_TIMEOUT", field: func(c *Config) any { return &c.Admission.QueueTimeout }},
		{name: "HEADGATE_ADMISSION_MAX_QUEUED_BYTES", field: func(c *Config) any { return &c.Admission.MaxQueuedBytes }},
		{name: "HEADGATE_HEAVY_BYTES", field: func(c *Config) any { return &c.Admission.HeavyBytes }},
		{name: "HEADGATE_HARD_MAX_BODY_BYTES", field: func(c *Config) any { return &c.Admission.HardMaxBodyBytes }},
		{name: "HEADGATE_HEALTHY_HEADROOM", field: func(c *Config) any { return &c.Admission.HealthyHeadroom }},
		{name: "HEADGATE_HEAP_SHED_RATIO", field: func(c *Config) any { return &c.Admission.HeapShedRatio }},
		{name: "HEADGATE_LANES_MODE", field: func(c *Config) any { return &c.Lanes.Mode }},
		{name: "HEADGATE_VIRTUAL_LANES", field: func(c *Config) any { return &c.Lanes.VirtualLanes }},
		{name: "HEADGATE_LANES_ALGORITHM", field: func(c *Config) any { return &c.Lanes.Algorithm }},
		{name: "HEADGATE_LANES_MIN_LIMIT", field: func(c *Config) any { return &c.Lanes.MinLimit }},
		{name: "HEADGATE_LANES_INITIAL_LIMIT", field: func(c *Config) any { return &c.Lanes.InitialLimit }},
		{name: "HEADGATE_LANES_MAX_LIMIT", field: func(c *Config) any { return &c.Lanes.MaxLimit }},
		{name: "HEADGATE_LANES_MAX_QUEUE_COUNT", field: func(c *Config) any { return &c.Lanes.MaxQueueCount }},
		{name: "HEADGATE_LANES_MAX_QUEUE_COST", field: func(c *Config) any { return &c.Lanes.MaxQueueCost }},
		{name: "HEADGATE_LANES_MAX_WAIT", field: func(c *Config) any { return &c.Lanes.MaxWait }},
		{name: "HEADGATE_LANES_MAX_LANES", field: func(c *Config) any { return &c.Lanes.MaxLanes }},
		{name: "HEADGATE_MAX_INFLIGHT", field: func(c *Config) any { return &c.Inflight.MaxInflight }},
		{name: "HEADGATE_INFLIGHT_QUEUE_TIMEOUT", field: func(c *Config) any { return &c.Inflight.QueueTimeout }},
		{name: "HEADGATE_INFLIGHT_INTERACTIVE_RESERVE", field: func(c *Config) any { return &c.Inflight.InteractiveReserve }},
	}
}

// setFromEnv sets what the environment says in c, and returns the variables that did.
func (c *Config) setFromEnv(getenv func(string) string) (set []variable, err error) {
	for _, v := range variables() {
		if v.text = getenv(v.name); v.text == "" {
			continue
		}
		if err := parse(v.text, v.field(c)); err != nil {
			return nil, fmt.Errorf("%s is %.40q: %w", v.name, v.text, err)
		}
		set = append(set, v)
	}
	return set, nil
}

// parse sets into from s. Its errors do not repeat s, which may be long.
func parse(s string, into any) error {
	var err error
	switch p := into.(type) {
	case *gate.Size:
		if p.UnmarshalText([]byte(s)) != nil {
			err = errors.New("want a whole number of bytes that fits in 64 bits, or one with a unit such as 64MiB")
		}
	case *time.Duration:
		if *p, err = time.ParseDuration(s); err != nil {
			err = errors.New("want a duration such as 1m30s")
		}
	case *int:
		if *p, err = strconv.Atoi(s); err != nil {
			err = errors.New("want a whole number")
		}
	case *bool:
		if *p, err = strconv.ParseBool(s); err != nil {
			err = errors.New("want true or false")
		}
	case encoding.TextUnmarshaler: // its error repeats s, cut short
		err = p.UnmarshalText([]byte(s))
	case *float64:
		if *p, err = strconv.ParseFloat(s, 64); err != nil {
			err = errors.New("want a number")
		}
	}
	return err
}
