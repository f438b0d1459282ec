package promgate

import (
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/prometheus/client_golang/prometheus"
)

// metric is one metric family.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// names makes the metrics of one subsystem, and tells the collector of them.
type names struct {
	collector *Collector
	config    *config
	subsystem string
}

func (n names) desc(name, help string, labels []string) *prometheus.Desc {
	d := prometheus.NewDesc(prometheus.BuildFQName(n.config.namespace, n.subsystem, name), help, labels, n.config.labels)
	n.collector.descs = append(n.collector.descs, d)
	return d
}

func (n names) gauge(name, help string, labels ...string) metric {
	return metric{n.desc(name, help, labels), prometheus.GaugeValue}
}

func (n names) counter(name, help string, labels ...string) metric {
	return metric{n.desc(name, help, labels), prometheus.CounterValue}
}

func (n names) histogram(name, help string, labels ...string) *prometheus.Desc {
	return n.desc(name, help, labels)
}

// page is the metrics of one scrape.
type page []prometheus.Metric

// add panics on a number of labels that is not the metric's, which is a mistake here.
func (p *page) add(m metric, value float64, labels ...string) {
	*p = append(*p, prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...))
}

func (p *page) count(m metric, value int64, labels ...string) { p.add(m, float64(value), labels...) }

func (p *page) flag(m metric, on bool, labels ...string) {
	value := 0.0
	if on {
		value = 1
	}
	p.add(m, value, labels...)
}

// known adds what is absent while it is 0, which says that it is not known.
func (p *page) known(m metric, value float64, labels ...string) {
	if value != 0 {
		p.add(m, value, labels...)
	}
}

func (p *page) histogram(d *prometheus.Desc, h inflight.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	n := uint64(0)
	for i, m := range h.Counts {
		if n += uint64(max(m, 0)); i < len(h.Bounds) {
			buckets[h.Bounds[i].Seconds()] = n
		}
	}
	*p = append(*p, prometheus.MustNewConstHistogram(d, n, h.Sum.Seconds(), buckets, labels...))
}

// sheds adds the refusals by reason: all that the gate knows, from the start, and
// whatever else there is.
func (p *page) sheds(m metric, by map[gate.Reason]int64, known []gate.Reason) {
	for _, r := range known {
		p.count(m, by[r], string(r))
	}
	for _, r := range slices.Sorted(maps.Keys(by)) {
		if !slices.Contains(known, r) {
			p.count(m, by[r], string(r))
		}
	}
}

// shadow adds what enforce would have done.
func (p *page) shadow(m metric, admit, queue, refuse int64) {
	p.count(m, admit, "admit")
	p.count(m, queue, "queue")
	p.count(m, refuse, "refuse")
}

// rising is a counter that its gate may take back for a moment: who was granted and has
// left is first counted in and then out. A counter that falls would look like a restart.
type rising int64

func (r *rising) at(value int64) int64 {
	*r = max(*r, rising(value))
	return int64(*r)
}

// text is fit for a label.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
