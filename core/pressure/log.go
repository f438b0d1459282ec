package pressure

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// logChange writes the line for a change of severity, with the numbers that decided.
func (m *Monitor) logChange(c *Config, s *sample, last Severity, lasted time.Duration) {
	now, cause := m.judge.severity, m.judge.cause
	r, t := &s.readings[cause], c.thresholds(cause)
	level, threshold := slog.LevelWarn, t.High
	switch {
	case now < last:
		level, threshold = slog.LevelInfo, t.Recovered
	case now == Critical:
		threshold = t.Critical
	}
	attrs := []slog.Attr{
		slog.String("from", last.String()), slog.String("to", now.String()), slog.Duration("after", lasted),
		slog.String("signal", cause.String()),
	}
	if r.known {
		attrs = append(attrs, slog.Float64("value", r.value))
	} else {
		attrs = append(attrs, slog.String("unknown", r.reason))
	}
	if cause != oom {
		attrs = append(attrs, slog.Float64("threshold", threshold))
	}
	if r.limit > 0 {
		attrs = append(attrs, slog.Int64("used_bytes", r.used), slog.Int64("limit_bytes", r.limit))
	}
	if r.level != "" {
		attrs = append(attrs, slog.String("cgroup", r.level))
	}
	if r.host {
		attrs = append(attrs, slog.String("scope", scopeHost))
	}
	c.Logger.LogAttrs(context.Background(), level, "memory pressure changed", attrs...)
}

// logMissing writes a line for the signals that are unknown for the first time, or known of
// some levels of the cgroup only: one for those that are so for the same reason. It is a warning
// where something is there that cannot be used.
func (m *Monitor) logMissing(log *slog.Logger, s *sample) {
	for id := range signals {
		r := &s.readings[id]
		if !r.lacks() || m.logged[id] {
			continue
		}
		var names []string
		for other := id; other < signals; other++ {
			if o := &s.readings[other]; o.lacks() && !m.logged[other] && o.reason == r.reason && o.known == r.known {
				m.logged[other] = true
				names = append(names, other.String())
			}
		}
		level, text := slog.LevelInfo, "memory pressure signal is not available"
		if r.trouble {
			level = slog.LevelWarn
		}
		if r.known {
			text = "memory pressure signal is not complete"
		}
		log.LogAttrs(context.Background(), level, text, slog.String("signal", strings.Join(names, ",")), slog.String("reason", r.reason))
	}
}

// lacks reports whether there is something to be said about what the reading lacks.
func (r *reading) lacks() bool { return !r.known && !r.quiet || r.known && r.trouble }
