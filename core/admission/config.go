package admission

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// Auto is the value of a setting that is derived: see each field.
const Auto = -1

// Bounds of the budget, derived or set.
const (
	minBudget = 8 << 20
	maxBudget = 2 << 30
)

// Config is what a Budget is made of. Values are literal: start from
// [DefaultConfig]. A field that is out of range is an error of New and Reconfigure
// which names it.
type Config struct {
	// Mode says whether the budget is enforced. Default enforce.
	Mode gate.Mode `yaml:"mode"`
	// MaxInflightBytes is the budget, clamped to 8 MiB..2 GiB. Default Auto:
	// derived from the process's memory ceiling. 0 is an error.
	MaxInflightBytes gate.Size `yaml:"max_inflight_bytes"`
	// QueueTimeout is the longest wait for room. Default 15s. 0 lets nobody wait.
	QueueTimeout time.Duration `yaml:"queue_timeout"`
	// MaxWaiters bounds how many wait. Default 1024. 0 lets nobody wait.
	MaxWaiters int `yaml:"max_waiters"`
	// MaxQueuedBytes bounds the body bytes that waiters hold in memory already; a
	// body that is not read yet counts nothing. Default Auto: 4 MiB or half the
	// budget, whichever is larger. 0 lets no buffered body wait.
	MaxQueuedBytes gate.Size `yaml:"max_queued_bytes"`
	// HeavyBytes is the declared length from which a body is heavy. Default
	// 256KiB. 0 is an error.
	HeavyBytes gate.Size `yaml:"heavy_bytes"`
	// HardMaxBodyBytes is the cap for one body. Default 50MiB. 0 is an error. The
	// effective cap is the smaller of this and the budget.
	HardMaxBodyBytes gate.Size `yaml:"hard_max_body_bytes"`
	// MaxHeavyInFlight caps the number of heavy bodies in flight, in the same
	// dispatch as the bytes. Default Auto: no count cap. 0 is an error.
	MaxHeavyInFlight int `yaml:"max_heavy_in_flight"`
	// HealthyHeadroom is how many heavy bodies more than MaxHeavyInFlight may be
	// in flight while the live heap is under HeapShedRatio of the ceiling. The
	// bytes bound them all the same. Default Auto: as many as MaxHeavyInFlight. 0
	// = none. Without a count cap it has no effect.
	HealthyHeadroom int `yaml:"healthy_headroom"`
	// HeapShedRatio is the part of the ceiling under which the heap is healthy,
	// above 0 up to 1. Default 0.75.
	HeapShedRatio float64 `yaml:"heap_shed_ratio"`
	// Exempt lists paths whose requests are admitted without room, such as
	// "/healthz". A path matches only when it is equal to the decoded path of the
	// request, byte for byte: no prefix, no cleaning, no case folding. Requests
	// with a heavy body or one of unknown length are not exempt. Default none.
	Exempt []string `yaml:"exempt"`
	// MaxExempt is how many exempt requests may be in flight. Default 256. 0 is an
	// error.
	MaxExempt int `yaml:"max_exempt"`
	// Factors price bodies that cost more memory than their bytes. The first that
	// matches counts. Default none: every byte costs one.
	Factors []Factor `yaml:"factors"`
	// ReleaseAt says when the bytes come back. Default first_byte.
	ReleaseAt ReleaseAt `yaml:"release_at"`
	// BodyIdle ends a Read that is blocked for so long. Default 10s. 0 is an error.
	BodyIdle time.Duration `yaml:"body_idle"`
	// BodyTimeout bounds the time that all Reads of one body are blocked. Default
	// 5m. 0 is an error.
	BodyTimeout time.Duration `yaml:"body_timeout"`
	// MinBodyRate is the least average, in bytes per second of blocked time, after
	// the first 10 s. Default 1KiB. 0 = no least.
	MinBodyRate gate.Size `yaml:"min_body_rate"`
	// MinBodyRateWaiting is MinBodyRate while somebody waits, after the first 2 s.
	// Default 64KiB. 0 = no least.
	MinBodyRateWaiting gate.Size `yaml:"min_body_rate_waiting"`
	// MaxDecodedBytes is the cap for what one compressed body may inflate to; see
	// [Budget.Gunzip]. Default 100MiB. 0 is an error.
	MaxDecodedBytes gate.Size `yaml:"max_decoded_bytes"`
	// Pressure says how close the process is to its memory limit; see "Pressure" in the
	// package comment. The caller closes it, after the budget. New alone looks at it:
	// Reconfigure leaves it as it is. Default nil: nothing is shed for pressure, and the
	// budget reads the memory ceiling by itself.
	Pressure *pressure.Monitor `yaml:"-"`
	// Logger gets lines of refusals, at most one a second for each reason; see
	// "Log" in the package comment. Default nil: none.
	Logger *slog.Logger `yaml:"-"`
}

// Factor charges bodies that match it Times their bytes. An empty field matches
// everything.
type Factor struct {
	// ContentType is a media type without parameters, "application/json", in any case.
	ContentType string `yaml:"content_type"`
	// Route is the matched pattern, where the adapter knows it before admission.
	Route string `yaml:"route"`
	// Times is the factor, above 0 up to 64.
	Times float64 `yaml:"times"`
}

// ReleaseAt says when a body's bytes come back. The zero ReleaseAt is not set
// and is a configuration error.
type ReleaseAt uint8

// When bytes come back.
const (
	// FirstByte: when a back end has answered and the body was read to its end, at
	// the latest when the handler returns.
	FirstByte ReleaseAt = iota + 1
	// Return: when the handler returns.
	Return
)

// String returns "first_byte" or "return".
func (r ReleaseAt) String() string {
	switch r {
	case FirstByte:
		return "first_byte"
	case Return:
		return "return"
	}
	return fmt.Sprintf("release_at(%d)", uint8(r))
}

// MarshalText returns String's form.
func (r ReleaseAt) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText sets r from "first_byte" or "return".
func (r *ReleaseAt) UnmarshalText(b []byte) error {
	switch string(b) {
	case "first_byte":
		*r = FirstByte
	case "return":
		*r = Return
	default:
		return fmt.Errorf("release_at %.40q: want first_byte or return", b)
	}
	return nil
}

// DefaultConfig returns the defaults that the fields name.
func DefaultConfig() Config {
	return Config{
		Mode:               gate.Enforce,
		MaxInflightBytes:   Auto,
		QueueTimeout:       15 * time.Second,
		MaxWaiters:         1024,
		MaxQueuedBytes:     Auto,
		HeavyBytes:         256 << 10,
		HardMaxBodyBytes:   50 << 20,
		MaxHeavyInFlight:   Auto,
		HealthyHeadroom:    Auto,
		HeapShedRatio:      0.75,
		MaxExempt:          256,
		ReleaseAt:          FirstByte,
		BodyIdle:           10 * time.Second,
		BodyTimeout:        5 * time.Minute,
		MinBodyRate:        1 << 10,
		MinBodyRateWaiting: 64 << 10,
		MaxDecodedBytes:    100 << 20,
	}
}

// Validate returns an error that names the first field that is out of range, or
// nil. New and Reconfigure call it.
func (c Config) Validate() error {
	if !c.Mode.Valid() {
		return fail("Mode", c.Mode, "want off, shadow or enforce")
	}
	if c.ReleaseAt != FirstByte && c.ReleaseAt != Return {
		return fail("ReleaseAt", c.ReleaseAt, "want first_byte or return")
	}
	for _, f := range []struct {
		name  string
		value int64
		least int64
		auto  bool
	}{
		{"MaxInflightBytes", int64(c.MaxInflightBytes), 1, true},
		{"MaxWaiters", int64(c.MaxWaiters), 0, false},
		{"MaxQueuedBytes", int64(c.MaxQueuedBytes), 0, true},
		{"HeavyBytes", int64(c.HeavyBytes), 1, false},
		{"HardMaxBodyBytes", int64(c.HardMaxBodyBytes), 1, false},
		{"MaxHeavyInFlight", int64(c.MaxHeavyInFlight), 1, true},
		{"HealthyHeadroom", int64(c.HealthyHeadroom), 0, true},
		{"MaxExempt", int64(c.MaxExempt), 1, false},
		{"MinBodyRate", int64(c.MinBodyRate), 0, false},
		{"MinBodyRateWaiting", int64(c.MinBodyRateWaiting), 0, false},
		{"MaxDecodedBytes", int64(c.MaxDecodedBytes), 1, false},
	} {
		switch {
		case f.auto && f.value == Auto:
		case f.value < f.least && f.auto:
			return fail(f.name, f.value, fmt.Sprintf("want at least %d, or Auto (-1)", f.least))
		case f.value < f.least:
			return fail(f.name, f.value, fmt.Sprintf("want at least %d", f.least))
		}
	}
	switch {
	case c.QueueTimeout < 0:
		return fail("QueueTimeout", c.QueueTimeout, "want at least 0s")
	case c.BodyIdle <= 0:
		return fail("BodyIdle", c.BodyIdle, "want above 0s")
	case c.BodyTimeout <= 0:
		return fail("BodyTimeout", c.BodyTimeout, "want above 0s")
	}
	if !(c.HeapShedRatio > 0 && c.HeapShedRatio <= 1) {
		return fail("HeapShedRatio", c.HeapShedRatio, "want above 0, up to 1")
	}
	return c.validateLists()
}

func (c Config) validateLists() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"MaxWaiters", c.MaxWaiters}, {"MaxExempt", c.MaxExempt},
		{"MaxHeavyInFlight", c.MaxHeavyInFlight}, {"HealthyHeadroom", c.HealthyHeadroom},
	} {
		if f.value > 1<<20 {
			return fail(f.name, f.value, "want at most 1048576")
		}
	}
	for i, p := range c.Exempt {
		if !strings.HasPrefix(p, "/") {
			return fail(fmt.Sprintf("Exempt[%d]", i), p, `want a path that begins with "/"`)
		}
	}
	for i, f := range c.Factors {
		if !(f.Times > 0 && f.Times <= 64) || math.IsNaN(f.Times) {
			return fail(fmt.Sprintf("Factors[%d].Times", i), f.Times, "want above 0, up to 64")
		}
		if f.ContentType == "" && f.Route == "" {
			return fail(fmt.Sprintf("Factors[%d]", i), f.Times, "want ContentType or Route")
		}
		if strings.ContainsAny(f.ContentType, "; ") {
			return fail(fmt.Sprintf("Factors[%d].ContentType", i), f.ContentType, "want a media type without parameters")
		}
	}
	return nil
}

func fail(field string, value any, want string) error {
	return fmt.Errorf("admission: %s is %v: %s (DefaultConfig has working values)", field, value, want)
}
