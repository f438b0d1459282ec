package pressure

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"
)

// Config is what a Monitor is made of. Values are literal: start from
// [DefaultConfig]. A field that is out of range is an error of New and Reconfigure
// which names it.
type Config struct {
	// Period is the time between two samples, 10ms to 1m. Default 1s. 0 is an error.
	// The rules that count samples go by it.
	Period time.Duration `yaml:"period"`
	// LiveHeap is about what the last collection left alive over the memory ceiling.
	// Default 0.85, 0.92, 0.75.
	LiveHeap Thresholds `yaml:"live_heap"`
	// WorkingSet is about a cgroup's working set over its limit. Default 0.85, 0.92, 0.75.
	WorkingSet Thresholds `yaml:"working_set"`
	// MemoryHigh is about a cgroup's working set over its memory.high. Default 0.85, 0.92, 0.75.
	MemoryHigh Thresholds `yaml:"memory_high"`
	// PSI is about the kernel's stall information, avg10 of "some" and of "full", in
	// percent. Default 30, 60, 15.
	PSI Thresholds `yaml:"psi"`
	// GCShare is about the part of the CPU time that collections take. Default 0.25,
	// 0.40, 0.10.
	GCShare Thresholds `yaml:"gc_share"`
	// OOMHold is for how long a kill by the kernel's OOM killer keeps the severity
	// critical. Default 10s. 0 = for the sample that sees it.
	OOMHold time.Duration `yaml:"oom_hold"`
	// Collect lets the monitor force collections while the severity is not normal.
	// Default true. Without them a heap that nobody uses any more is noticed when the
	// runtime collects by itself: within 2 minutes, or never with GOGC=off.
	Collect bool `yaml:"collect"`
	// CollectInterval is the least time between two forced collections. It doubles, up
	// to 16 times, whenever one has freed less than 5 %. Default 30s. 0 is an error.
	CollectInterval time.Duration `yaml:"collect_interval"`
	// NotReadyAfter is how long the severity is critical until Ready says false. Default
	// 1m. 0 = at once.
	NotReadyAfter time.Duration `yaml:"not_ready_after"`
	// Logger gets one line for each change of severity, and one for each signal that
	// is not available: a warning where it is there and cannot be used. Default nil: no log.
	Logger *slog.Logger `yaml:"-"`
	// Root is what stands for "/", to try other machines in tests. Default nil: the
	// real one.
	Root fs.FS `yaml:"-"`
}

// Thresholds say what a value of a signal means: High and Critical from the value on,
// Recovered down to it. They must be ordered: 0 <= Recovered < High < Critical.
type Thresholds struct {
	High      float64 `yaml:"high"`
	Critical  float64 `yaml:"critical"`
	Recovered float64 `yaml:"recovered"`
	// Off leaves the signal out: it reads unknown, and the other fields are not looked at.
	// Default false.
	Off bool `yaml:"off"`
}

// DefaultConfig returns the defaults that the fields name.
func DefaultConfig() Config {
	ratio := Thresholds{High: 0.85, Critical: 0.92, Recovered: 0.75}
	return Config{
		Period:          time.Second,
		LiveHeap:        ratio,
		WorkingSet:      ratio,
		MemoryHigh:      ratio,
		PSI:             Thresholds{High: 30, Critical: 60, Recovered: 15},
		GCShare:         Thresholds{High: 0.25, Critical: 0.40, Recovered: 0.10},
		OOMHold:         10 * time.Second,
		Collect:         true,
		CollectInterval: 30 * time.Second,
		NotReadyAfter:   time.Minute,
	}
}

// maxHold bounds the durations that only wait.
const maxHold = 24 * time.Hour

// Validate returns an error that names the first field that is out of range, or
// nil. New and Reconfigure call it.
func (c Config) Validate() error {
	if c.Period < 10*time.Millisecond || c.Period > time.Minute {
		return fail("Period", c.Period, "want 10ms to 1m")
	}
	for _, f := range []struct {
		name string
		t    Thresholds
		most float64
	}{
		{"LiveHeap", c.LiveHeap, 1}, {"WorkingSet", c.WorkingSet, 1}, {"MemoryHigh", c.MemoryHigh, 1},
		{"PSI", c.PSI, 100}, {"GCShare", c.GCShare, 1},
	} {
		if err := f.t.validate(f.name, f.most); err != nil {
			return err
		}
	}
	switch {
	case c.OOMHold < 0 || c.OOMHold > maxHold:
		return fail("OOMHold", c.OOMHold, "want 0s to 24h")
	case c.CollectInterval < c.Period || c.CollectInterval > maxHold:
		return fail("CollectInterval", c.CollectInterval, "want Period to 24h")
	case c.NotReadyAfter < 0 || c.NotReadyAfter > maxHold:
		return fail("NotReadyAfter", c.NotReadyAfter, "want 0s to 24h")
	}
	return nil
}

// validate's comparisons are false for NaN, so they ask for what is right.
func (t Thresholds) validate(name string, most float64) error {
	switch {
	case t.Off:
		return nil
	case !(t.Recovered >= 0):
		return fail(name+".Recovered", t.Recovered, "want at least 0")
	case !(t.High > t.Recovered):
		return fail(name+".High", t.High, fmt.Sprintf("want above Recovered, %v", t.Recovered))
	case !(t.Critical > t.High):
		return fail(name+".Critical", t.Critical, fmt.Sprintf("want above High, %v", t.High))
	case !(t.Critical <= most):
		return fail(name+".Critical", t.Critical, fmt.Sprintf("want at most %v", most))
	}
	return nil
}

func fail(field string, value any, want string) error {
	return fmt.Errorf("pressure: %s is %v: %s (DefaultConfig has working values)", field, value, want)
}
