package promgate

import (
	"errors"
	"fmt"
	"sync"

	"github.com/headgate-go/headgate/core"
	"github.com/prometheus/client_golang/prometheus"
)

// Collector is a [prometheus.Collector] of one Headgate's metrics. Use New. All methods
// are safe for concurrent use.
type Collector struct {
	of       headgate.Headgate // the gates; for comparing, and not locked
	sources  []source
	descs    []*prometheus.Desc
	failures metric

	mu     sync.Mutex       // scrapes go one by one, so that what a later one reports is later
	failed map[string]int64 // scrapes that failed, by gate
}

// source is one gate's metrics.
type source struct {
	gate string
	// read reads the gate and appends its metrics. It is called by one at a time.
	read func(*page)
}

// New returns the collector of hg's metrics. A gate that is nil has none, so single gates
// can be put into a Headgate literal; hg's fields are read once, here. The error names the
// option that is wrong. New starts nothing and registers nothing: see Register.
func New(hg *headgate.Headgate, opts ...Option) (*Collector, error) {
	if hg == nil {
		return nil, errors.New("promgate: hg is nil: want what headgate.Open returns, or a Headgate with a gate")
	}
	cfg := defaults()
	for _, o := range opts {
		o(&cfg)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Collector{of: *hg, failed: make(map[string]int64)}
	if hg.Bytes != nil {
		c.add(admissionName, newAdmission(hg.Bytes, c.names(&cfg, cfg.subsystems.Admission)).read)
	}
	if hg.Memory != nil {
		c.add(pressureName, newPressure(hg.Memory, c.names(&cfg, cfg.subsystems.Pressure)).read)
	}
	if hg.Tenants != nil {
		c.add(lanesName, newLanes(hg.Tenants, c.names(&cfg, cfg.subsystems.Lanes)).read)
	}
	if hg.Outbound != nil {
		c.add(outboundName, newOutbound(hg.Outbound, c.names(&cfg, cfg.subsystems.Outbound)).read)
	}
	if len(c.sources) == 0 {
		return nil, errors.New("promgate: hg has no gate: all its fields are nil")
	}
	c.failures = c.names(&cfg, "").counter("scrape_failures_total",
		"Scrapes that could not read a gate's state; its other series were absent from them.", "gate")
	// A registry of its own says whether names and labels go together.
	if err := prometheus.NewRegistry().Register(c); err != nil {
		return nil, fmt.Errorf("promgate: WithConstLabels or WithSubsystems: %w", err)
	}
	return c, nil
}

// The gates' names in the label "gate".
const (
	admissionName = "admission"
	pressureName  = "pressure"
	lanesName     = "lanes"
	outboundName  = "outbound"
)

func (c *Collector) add(gate string, read func(*page)) {
	c.sources = append(c.sources, source{gate, read})
}

func (c *Collector) names(cfg *config, subsystem string) names {
	return names{collector: c, config: cfg, subsystem: subsystem}
}

// Register registers the metrics with reg. stop unregisters them, once, and nobody else's.
//
// A registry that has the metrics of these gates already stays as it is, and that is no
// error; stop does nothing then. One that has another Headgate's by the same names and
// labels is an error, and nothing has changed: WithConstLabels tells the two apart, if
// both have labels of the same names.
func (c *Collector) Register(reg prometheus.Registerer) (stop func(), err error) {
	err = reg.Register(c)
	if err == nil {
		return sync.OnceFunc(func() { reg.Unregister(c) }), nil
	}
	var dup prometheus.AlreadyRegisteredError
	if errors.As(err, &dup) {
		if existing, ok := dup.ExistingCollector.(*Collector); ok && existing.of == c.of {
			return func() {}, nil
		}
	}
	return nil, fmt.Errorf("promgate: the registry has metrics by these names: where they are another Headgate's, "+
		"give each of the two its own value of one label by WithConstLabels, or another name by WithNamespace: %w", err)
}

// Describe sends the metrics' descriptions.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads the gates' state and sends it as metrics. It reads memory only, and no
// gate's lock is held while metrics are made or sent. Where a gate panics, its series are
// absent, and scrape_failures_total counts that: no scrape ends the process.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.collect() {
		ch <- m
	}
}

func (c *Collector) collect() []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all page
	for _, s := range c.sources {
		p, err := s.try()
		if err != nil {
			c.failed[s.gate]++
		} else {
			all = append(all, p...)
		}
		all.add(c.failures, float64(c.failed[s.gate]), s.gate)
	}
	return all
}

// try reads a gate. The error is what it panicked with.
func (s source) try() (p page, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("promgate: %s: %v", s.gate, v)
		}
	}()
	s.read(&p)
	return p, nil
}
