package pressure

import "log/slog"

// LogValue is the snapshot in a log line: the severity, the signal that keeps it up, and
// the value of every signal, with the two sides of those that are ratios of bytes.
func (s Snapshot) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("severity", s.Severity.String()), slog.String("signal", s.Signal), slog.Float64("since_s", s.SinceS),
	}
	for _, in := range s.Signals {
		switch {
		case in.Value == nil:
			attrs = append(attrs, slog.String(in.Name, in.State))
		case in.LimitBytes > 0:
			attrs = append(attrs, slog.Group(in.Name, slog.Float64("value", *in.Value),
				slog.Int64("used_bytes", in.UsedBytes), slog.Int64("limit_bytes", in.LimitBytes)))
		default:
			attrs = append(attrs, slog.Float64(in.Name, *in.Value))
		}
	}
	return slog.GroupValue(attrs...)
}
