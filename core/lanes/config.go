package lanes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
	"github.com/headgate-go/headgate/core/pressure"
)

// Config is what a Controller is made of. Values are literal: start from
// [DefaultConfig]. A field that is out of range is an error of New and Reconfigure
// which names it.
type Config struct {
	// Mode says whether the limit is enforced. Default shadow: everything is admitted,
	// and books are kept of what enforce would have done. Off keeps none.
	Mode gate.Mode `yaml:"mode"`
	// VirtualLanes gives each tenant a queue of its own and switches probes on. Default
	// false: one queue, fair among tenants all the same, and probes that say yes.
	VirtualLanes bool `yaml:"virtual_lanes"`
	// Algorithm says what moves the limit. Default gradient.
	Algorithm Algorithm `yaml:"algorithm"`
	// MinLimit, InitialLimit and MaxLimit are the least, the first and the largest
	// limit, in cost units. Defaults 8, 64 and 1000. 0 is an error, and so is an
	// InitialLimit that is not between the other two. A request that costs more than
	// MaxLimit is refused at once.
	MinLimit     int `yaml:"min_limit"`
	InitialLimit int `yaml:"initial_limit"`
	MaxLimit     int `yaml:"max_limit"`
	// Window is how often the limit moves, 10ms to 1h. Default 1s. All that the package
	// comment says of windows goes by it. 0 is an error.
	Window time.Duration `yaml:"window"`
	// MaxQueueCount and MaxQueueCost bound how many wait in one queue and what they
	// cost. With VirtualLanes all queues together hold 8 times as much. Defaults 128 and
	// 2000. 0 lets nobody wait.
	MaxQueueCount int `yaml:"max_queue_count"`
	MaxQueueCost  int `yaml:"max_queue_cost"`
	// MaxWait is the longest wait. Default 5s. 0 lets nobody wait.
	MaxWait time.Duration `yaml:"max_wait"`
	// MaxLanes bounds the lanes that exist at once. Tenants beyond it have the share and the
	// bounds of one, together, so it should be above the number that is active at a time.
	// Default 1000. 0 is an error.
	MaxLanes int `yaml:"max_lanes"`
	// Exempt lists paths whose requests are admitted without cost, lane or sample, such
	// as "/healthz". A path matches only when it is equal to the request's decoded
	// path, byte for byte. Default none.
	Exempt []string `yaml:"exempt"`
	// MaxExempt is how many exempt requests may be in flight. Default 256. 0 is an
	// error.
	MaxExempt int `yaml:"max_exempt"`

	// Cost prices a request that names no cost. If it fails, panics, or says less than
	// 1, the price is the default one, and that is counted. Default nil: [Price] of the
	// request's bytes, as one message that is no stream. A length that is not known counts
	// as 256 KiB, which costs 21, or MaxLimit if that is less: who has read the body names
	// the cost when it acquires.
	Cost func(context.Context, gate.Request) (int64, error) `yaml:"-"`
	// Stream says that a request will be answered by a stream, so that the time for
	// which it is held says nothing of the back end. It counts as false when it panics.
	// Default nil: no request is one. Where first bytes are reported by gate.Observe it
	// makes no difference.
	Stream func(context.Context, gate.Request) bool `yaml:"-"`
	// Pressure says how close the process is to its memory limit. New takes it;
	// Reconfigure goes on with what New was given. Default nil: never close.
	Pressure *pressure.Monitor `yaml:"-"`
	// Logger gets lines of refusals, at most one a second for each reason, with what is in
	// flight and waits. Default nil: none.
	Logger *slog.Logger `yaml:"-"`
}

// DefaultConfig returns the defaults that the fields name.
func DefaultConfig() Config {
	return Config{
		Mode:          gate.Shadow,
		Algorithm:     Gradient,
		MinLimit:      8,
		InitialLimit:  64,
		MaxLimit:      1000,
		Window:        time.Second,
		MaxQueueCount: 128,
		MaxQueueCost:  2000,
		MaxWait:       5 * time.Second,
		MaxLanes:      1000,
		MaxExempt:     256,
	}
}

const (
	// mostOf bounds every number that is configured.
	mostOf = 1_000_000
	// laneTotals is how many times the bounds of one lane all lanes may fill.
	laneTotals = 8
	// agingStep is the wait that raises a waiter's rank by one class.
	agingStep = time.Second
)

// Validate returns an error that names the first field that is out of range, or nil.
// New and Reconfigure call it.
func (c Config) Validate() error {
	if !c.Mode.Valid() {
		return fail("Mode", c.Mode, "want off, shadow or enforce")
	}
	if !c.Algorithm.valid() {
		return fail("Algorithm", c.Algorithm, "want gradient, aimd or fixed")
	}
	for _, f := range []struct {
		name         string
		value, least int
	}{
		{"MinLimit", c.MinLimit, 1}, {"InitialLimit", c.InitialLimit, 1}, {"MaxLimit", c.MaxLimit, 1},
		{"MaxQueueCount", c.MaxQueueCount, 0}, {"MaxQueueCost", c.MaxQueueCost, 0},
		{"MaxLanes", c.MaxLanes, 1}, {"MaxExempt", c.MaxExempt, 1},
	} {
		if f.value < f.least || f.value > mostOf {
			return fail(f.name, f.value, fmt.Sprintf("want %d to %d", f.least, mostOf))
		}
	}
	switch {
	case c.MinLimit > c.MaxLimit:
		return fail("MinLimit", c.MinLimit, fmt.Sprintf("want at most MaxLimit, %d", c.MaxLimit))
	case c.InitialLimit < c.MinLimit || c.InitialLimit > c.MaxLimit:
		return fail("InitialLimit", c.InitialLimit, fmt.Sprintf("want MinLimit to MaxLimit, %d to %d", c.MinLimit, c.MaxLimit))
	case c.Window < 10*time.Millisecond || c.Window > time.Hour:
		return fail("Window", c.Window, "want 10ms to 1h")
	case c.MaxWait < 0:
		return fail("MaxWait", c.MaxWait, "want at least 0s")
	}
	for i, p := range c.Exempt {
		if !strings.HasPrefix(p, "/") {
			return fail(fmt.Sprintf("Exempt[%d]", i), fmt.Sprintf("%.40q", p), `want a path that begins with "/"`)
		}
	}
	return nil
}

func fail(field string, value any, want string) error {
	return fmt.Errorf("lanes: %s is %v: %s (DefaultConfig has working values)", field, value, want)
}

// settings are a Config with what is derived from it. They are never changed.
type settings struct {
	Config
	most   int64
	exempt map[string]bool
	// plain: every request has to find room.
	plain bool
}

func derive(c Config) *settings {
	s := &settings{Config: c, most: int64(c.MaxLimit)}
	s.Exempt = append([]string(nil), c.Exempt...) // the caller's may change
	if len(s.Exempt) > 0 {
		s.exempt = make(map[string]bool, len(s.Exempt))
		for _, p := range s.Exempt {
			s.exempt[p] = true
		}
	}
	s.plain = c.Mode == gate.Enforce && s.exempt == nil
	return s
}

func (s *settings) law() lawConfig {
	return lawConfig{
		algorithm: s.Algorithm, window: s.Window,
		least: int64(s.MinLimit), start: int64(s.InitialLimit), most: s.most,
	}
}

// queue is the engine's configuration at a limit.
func (s *settings) queue(limit int64) waitq.Config {
	q := waitq.Config{
		Limit:      limit,
		ClassLimit: [waitq.Classes]int64{waitq.Unlimited, waitq.Unlimited, waitq.Unlimited},
		Timeout:    s.MaxWait,
		AgingStep:  agingStep,
		MaxWaiters: s.MaxQueueCount,
		MaxHeld:    int64(s.MaxQueueCost),
	}
	if s.VirtualLanes {
		q.FlowWaiters, q.FlowQueued = s.MaxQueueCount, int64(s.MaxQueueCost)
		q.MaxWaiters *= laneTotals
		q.MaxHeld *= laneTotals
	}
	return q
}
