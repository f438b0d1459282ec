package promgate

import "github.com/headgate-go/headgate/core/pressure"

type pressureMetrics struct {
	monitor *pressure.Monitor

	info, severity, ready, ceiling, signal, threshold, age, samples, collections metric
}

func newPressure(m *pressure.Monitor, n names) *pressureMetrics {
	return &pressureMetrics{
		monitor:     m,
		info:        n.gauge("info", "Where the memory ceiling comes from. Always 1.", "ceiling_source"),
		severity:    n.gauge("severity", "How close the process is to its memory limit: 0 normal, 1 high, 2 critical."),
		ready:       n.gauge("ready", "0 while the severity has been critical for too long to take more requests, else 1."),
		ceiling:     n.gauge("ceiling_bytes", "The memory ceiling. Absent while it is unknown."),
		signal:      n.gauge("signal", "What the last sample says of a signal: a ratio, percent (psi_some, psi_full), or a number of events (oom). Absent while it is unknown.", "signal"),
		threshold:   n.gauge("signal_threshold", "From where on a signal is high or critical, and down to where it has recovered. Absent where it has none.", "signal", "severity"),
		age:         n.gauge("sample_age_seconds", "How long ago the last sample was taken."),
		samples:     n.counter("samples_total", "Samples that were taken."),
		collections: n.counter("forced_collections_total", "Garbage collections that were forced under pressure."),
	}
}

func (m *pressureMetrics) read(p *page) {
	s := m.monitor.Snapshot()
	p.count(m.info, 1, s.CeilingSource)
	p.count(m.severity, int64(s.Severity))
	p.flag(m.ready, s.Ready)
	p.known(m.ceiling, float64(s.CeilingBytes))
	for _, signal := range s.Signals {
		if signal.Value != nil {
			p.add(m.signal, *signal.Value, signal.Name)
		}
		if signal.High == 0 && signal.Critical == 0 && signal.Recovered == 0 {
			continue // it is off
		}
		p.add(m.threshold, signal.High, signal.Name, "high")
		p.add(m.threshold, signal.Critical, signal.Name, "critical")
		p.add(m.threshold, signal.Recovered, signal.Name, "recovered")
	}
	p.add(m.age, s.SampleAgeS)
	p.count(m.samples, s.Samples)
	p.count(m.collections, s.Collections)
}
