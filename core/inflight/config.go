package inflight

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"maps"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// Config is what a Limiter is made of. Values are literal: start from
// [DefaultConfig]. A field that is out of range is an error of New and Reconfigure
// which names it.
type Config struct {
	// Mode says whether limits are enforced. Default enforce. Off counts what is in
	// flight and no more. Shadow keeps books of what enforce would have done; what it
	// has admitted beyond them is not in flight for a mode that comes after it.
	Mode gate.Mode `yaml:"mode"`
	// MaxInflight is the number of slots of each lane. Calls that are not interactive
	// have InteractiveReserve fewer: with 2 slots and the default of 1 they go one at a
	// time. Default 0 = off: every call is admitted and counted.
	MaxInflight int `yaml:"max_inflight"`
	// QueueTimeout is the longest wait for a slot. Default 300s. 0 lets nobody
	// wait.
	QueueTimeout time.Duration `yaml:"queue_timeout"`
	// InteractiveReserve is how many of a lane's slots only interactive calls may
	// take; a lane keeps one for the others at least. Default 1. 0 = none.
	InteractiveReserve int `yaml:"interactive_reserve"`
	// MaxQueue bounds how many wait in a lane. Default 1000. 0 lets nobody wait.
	MaxQueue int `yaml:"max_queue"`
	// AgingStep is the wait that raises a waiter's rank by one class. Default 60s.
	// 0 = nobody ages.
	AgingStep time.Duration `yaml:"aging_step"`
	// SlowWait is the 90th percentile of the waits above which a lane's verdict is
	// local_queue. Default 30s. 0 is an error.
	SlowWait time.Duration `yaml:"slow_wait"`
	// MaxLanes bounds the lanes that exist at once. Default 1000. 0 is an error.
	MaxLanes int `yaml:"max_lanes"`
	// Lanes are exceptions, by lane key, as LaneKey writes it where it makes the keys.
	// Default none.
	Lanes map[string]Override `yaml:"lanes"`
	// Logger gets lines of refusals, at most one a second for each reason, with what is in
	// flight and who waits; the lane's key is in it. Default nil: none.
	Logger *slog.Logger `yaml:"-"`
}

// Override is what differs in one lane.
type Override struct {
	// As the fields of the same names in Config. nil = the Config's.
	MaxInflight        *int           `yaml:"max_inflight"`
	QueueTimeout       *time.Duration `yaml:"queue_timeout"`
	InteractiveReserve *int           `yaml:"interactive_reserve"`
	MaxQueue           *int           `yaml:"max_queue"`
	AgingStep          *time.Duration `yaml:"aging_step"`
}

// DefaultConfig returns the defaults that the fields name.
func DefaultConfig() Config {
	return Config{
		Mode:               gate.Enforce,
		QueueTimeout:       300 * time.Second,
		InteractiveReserve: 1,
		MaxQueue:           1000,
		AgingStep:          60 * time.Second,
		SlowWait:           30 * time.Second,
		MaxLanes:           1000,
	}
}

// most bounds every count that is configured.
const most = waitq.MaxUnits

// Validate returns an error that names the first field that is out of range, or
// nil. New and Reconfigure call it.
func (c Config) Validate() error {
	if !c.Mode.Valid() {
		return fail("Mode", c.Mode, "want off, shadow or enforce")
	}
	if err := c.lane(Override{}).validate(""); err != nil {
		return err
	}
	switch {
	case c.SlowWait <= 0:
		return fail("SlowWait", c.SlowWait, "want above 0s")
	case c.MaxLanes < 1 || c.MaxLanes > most:
		return fail("MaxLanes", c.MaxLanes, fmt.Sprintf("want 1 to %d", most))
	case len(c.Lanes) > c.MaxLanes:
		return fail("Lanes", fmt.Sprintf("%d entries", len(c.Lanes)), fmt.Sprintf("want at most MaxLanes, %d", c.MaxLanes))
	}
	for _, key := range slices.Sorted(maps.Keys(c.Lanes)) {
		if canonical(key) != key || key == "" {
			shown := key
			if key != "" {
				shown = canonical(key) // there may be a password in it
			}
			return fail(fmt.Sprintf("Lanes[%.40q]", shown), "not a lane's key",
				fmt.Sprintf("want valid UTF-8 of 1 to %d bytes, without user and password", maxKey))
		}
		if err := c.lane(c.Lanes[key]).validate(fmt.Sprintf("Lanes[%.40q].", key)); err != nil {
			return err
		}
	}
	return nil
}

// laneConfig is what a lane goes by, overrides applied.
type laneConfig struct {
	maxInflight, reserve, maxQueue int
	queueTimeout, agingStep        time.Duration
}

func (c *Config) lane(o Override) laneConfig {
	lc := laneConfig{c.MaxInflight, c.InteractiveReserve, c.MaxQueue, c.QueueTimeout, c.AgingStep}
	or(&lc.maxInflight, o.MaxInflight)
	or(&lc.reserve, o.InteractiveReserve)
	or(&lc.maxQueue, o.MaxQueue)
	or(&lc.queueTimeout, o.QueueTimeout)
	or(&lc.agingStep, o.AgingStep)
	return lc
}

func or[T any](into *T, o *T) {
	if o != nil {
		*into = *o
	}
}

func (c laneConfig) validate(prefix string) error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"MaxInflight", c.maxInflight}, {"InteractiveReserve", c.reserve}, {"MaxQueue", c.maxQueue},
	} {
		if f.value < 0 || f.value > most {
			return fail(prefix+f.name, f.value, fmt.Sprintf("want 0 to %d", most))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"QueueTimeout", c.queueTimeout}, {"AgingStep", c.agingStep}} {
		if f.value < 0 {
			return fail(prefix+f.name, f.value, "want at least 0s")
		}
	}
	return nil
}

// off reports whether the lane has no limit.
func (c laneConfig) off() bool { return c.maxInflight == 0 }

// effectiveReserve is the reserve that leaves the other classes a slot.
func (c laneConfig) effectiveReserve() int { return max(0, min(c.reserve, c.maxInflight-1)) }

func (c Config) clone() Config {
	c.Logger = nil                // the shed log has it; two configurations are compared
	c.Lanes = maps.Clone(c.Lanes) // the caller's may change
	for key, o := range c.Lanes {
		c.Lanes[key] = Override{
			copied(o.MaxInflight), copied(o.QueueTimeout), copied(o.InteractiveReserve), copied(o.MaxQueue), copied(o.AgingStep),
		}
	}
	return c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func fail(field string, value any, want string) error {
	return fmt.Errorf("inflight: %s is %v: %s (DefaultConfig has working values)", field, value, want)
}
