package pressure

import "time"

// Snapshot is the state of a monitor, as JSON under "pressure".
type Snapshot struct {
	// Severity is what the monitor says now.
	Severity Severity `json:"severity"`
	// Signal is the one that raised the severity or last kept it up; "" while normal.
	Signal string `json:"signal"`
	// SinceS is for how long the severity has been so, in seconds.
	SinceS float64 `json:"since_s"`
	// Ready is as [Monitor.Ready].
	Ready bool `json:"ready"`

	// CeilingBytes is the memory ceiling, 0 = unknown. CeilingSource is gomemlimit, cgroup
	// or physical, and "unknown". CeilingPath and CeilingNote are as in [Ceiling].
	CeilingBytes  int64  `json:"ceiling_bytes"`
	CeilingSource string `json:"ceiling_source"`
	CeilingPath   string `json:"ceiling_path,omitempty"`
	CeilingNote   string `json:"ceiling_note,omitempty"`

	// Signals are the inputs, in the order of the table in the package comment.
	Signals []Signal `json:"signals"`

	// Samples counts the samples since New.
	Samples    int64   `json:"samples_total"`
	SampleAgeS float64 `json:"sample_age_s"` // since the last sample, in seconds

	// Collections counts forced collections. CollectionFreed is the part of the memory held
	// from the system that the last one to end has freed, 0..1.
	Collections     int64   `json:"forced_collections_total"`
	Collecting      bool    `json:"forced_collection_running"`
	CollectionFreed float64 `json:"forced_collection_freed"`
}

// Signal is one input of the severity, as of the last sample.
type Signal struct {
	// Name is live_heap, working_set, memory_high, psi_some, psi_full, gc_share or oom.
	Name string `json:"name"`
	// State is what this sample says by itself: normal, high, critical or unknown.
	State string `json:"state"`
	// Value is what the thresholds are about: a ratio, for PSI percent, for oom the number
	// of events since the monitor began. nil (null) while it is unknown.
	Value *float64 `json:"value"`
	// Reason says why the value is unknown or does not count, or what is odd about it.
	Reason string `json:"reason,omitempty"`
	// UsedBytes and LimitBytes are the two sides of a ratio of bytes.
	UsedBytes  int64 `json:"used_bytes,omitempty"`
	LimitBytes int64 `json:"limit_bytes,omitempty"`
	// Parts are what UsedBytes is made of: current less the others.
	Parts map[string]int64 `json:"parts,omitempty"`
	// Scope is process, cgroup or host; "" while the value is unknown. Path is the
	// cgroup's, as in [Ceiling].
	Scope string `json:"scope,omitempty"`
	Path  string `json:"path,omitempty"`
	// The thresholds, 0 for oom and for a signal that is off.
	High      float64 `json:"high"`
	Critical  float64 `json:"critical"`
	Recovered float64 `json:"recovered"`
}

const (
	scopeProcess = "process"
	scopeCgroup  = "cgroup"
	scopeHost    = "host"
)

// Snapshot reads the state of the last sample. It reads memory only and blocks nobody.
func (m *Monitor) Snapshot() Snapshot {
	s := m.state.Load()
	out := Snapshot{
		Severity: s.severity, SinceS: time.Since(s.since).Seconds(), Ready: m.Ready(),
		CeilingBytes: s.ceiling.Bytes, CeilingSource: string(s.ceiling.Source),
		CeilingPath: s.ceiling.Path, CeilingNote: s.ceiling.Reason,
		Samples: s.samples, SampleAgeS: time.Since(s.at).Seconds(),
		Collections: s.collections, Collecting: s.running, CollectionFreed: s.freed,
	}
	if s.severity != Normal {
		out.Signal = s.cause.String()
	}
	if out.CeilingSource == "" {
		out.CeilingSource = "unknown"
	}
	for id := range signals {
		out.Signals = append(out.Signals, s.readings[id].snapshot(id, s.config.thresholds(id)))
	}
	return out
}

func (r *reading) snapshot(id signal, t Thresholds) Signal {
	s := Signal{Name: id.String(), State: "unknown", Reason: r.reason}
	if !t.Off {
		s.High, s.Critical, s.Recovered = t.High, t.Critical, t.Recovered
	}
	if !r.known {
		return s
	}
	value := r.value
	s.State, s.Value, s.UsedBytes, s.LimitBytes = r.grade.severity.String(), &value, r.used, r.limit
	s.Parts = r.parts.snapshot()
	switch {
	case r.host:
		s.Scope = scopeHost
	case id == liveHeap || id == gcShare:
		s.Scope = scopeProcess
	default:
		s.Scope, s.Path = scopeCgroup, r.level
	}
	return s
}

// snapshot returns nil when there are no parts.
func (p parts) snapshot() map[string]int64 {
	var m map[string]int64
	for _, part := range []struct {
		name  string
		bytes int64
	}{
		{"current", p.current}, {"inactive_file", p.inactiveFile}, {"active_file", p.activeFile},
		{"slab_reclaimable", p.slab}, {"garbage", p.garbage},
	} {
		if part.bytes == 0 {
			continue
		}
		if m == nil {
			m = make(map[string]int64)
		}
		m[part.name] = part.bytes
	}
	return m
}
