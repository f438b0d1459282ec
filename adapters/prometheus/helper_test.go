package promgate_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// settings are those of all gates, which log nothing.
func settings() headgate.Config {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	c.Inflight.MaxInflight = 4
	return c
}

// open opens all gates until the test ends.
func open(t testing.TB, c headgate.Config) *headgate.Headgate {
	t.Helper()
	hg, err := headgate.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = hg.Shutdown(context.Background(), nil) })
	return hg
}

// limiter opens a limiter of outbound calls alone.
func limiter(t testing.TB, change func(*inflight.Config)) *headgate.Headgate {
	t.Helper()
	c := inflight.DefaultConfig()
	c.MaxInflight, c.InteractiveReserve = 4, 0
	if change != nil {
		change(&c)
	}
	l, err := inflight.New(c)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return &headgate.Headgate{Outbound: l}
}

// registered is a registry with hg's metrics.
func registered(t testing.TB, hg *headgate.Headgate, opts ...promgate.Option) *prometheus.Registry {
	t.Helper()
	c, err := promgate.New(hg, opts...)
	require.NoError(t, err)
	r := prometheus.NewRegistry()
	_, err = c.Register(r)
	require.NoError(t, err)
	return r
}

// series are the values of one scrape by name and labels, as in the text format without
// quotes: a histogram has name_count, name_sum and name_bucket.
type series map[string]float64

// scrape gathers, which must not fail.
func scrape(t testing.TB, g prometheus.Gatherer) series {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	s := make(series)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, l.GetName()+"="+l.GetValue())
			}
			labels := func(more ...string) string {
				all := slices.Concat(pairs, more)
				if len(all) == 0 {
					return ""
				}
				return "{" + strings.Join(all, ",") + "}"
			}
			switch h := m.GetHistogram(); {
			case h != nil:
				s[f.GetName()+"_count"+labels()] = float64(h.GetSampleCount())
				s[f.GetName()+"_sum"+labels()] = h.GetSampleSum()
				for _, b := range h.GetBucket() {
					s[f.GetName()+"_bucket"+labels(fmt.Sprint("le=", b.GetUpperBound()))] = float64(b.GetCumulativeCount())
				}
			case m.GetCounter() != nil:
				s[f.GetName()+labels()] = m.GetCounter().GetValue()
			default:
				s[f.GetName()+labels()] = m.GetGauge().GetValue()
			}
		}
	}
	return s
}

// value is that of a series that must be there.
func (s series) value(t testing.TB, name string) float64 {
	t.Helper()
	v, ok := s[name]
	require.True(t, ok, "there is no %s", name)
	return v
}

// of are the series of one metric.
func (s series) of(name string) series {
	sub := make(series)
	for k, v := range s {
		if k == name || strings.HasPrefix(k, name+"{") {
			sub[k] = v
		}
	}
	return sub
}

func (s series) sum() (n float64) {
	for _, v := range s {
		n += v
	}
	return n
}

func (s series) names() []string { return slices.Sorted(maps.Keys(s)) }

// crowd is callers that run beside a test, in a bubble.
type crowd struct {
	t      testing.TB
	mu     sync.Mutex
	leases map[string]gate.Lease
	errs   map[string]error
}

func newCrowd(t testing.TB) *crowd {
	return &crowd{t: t, leases: make(map[string]gate.Lease), errs: make(map[string]error)}
}

func (c *crowd) ask(ctx context.Context, g gate.Gate, name string, r gate.Request) {
	go func() {
		lease, err := g.Acquire(ctx, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs[name] = err
		} else {
			c.leases[name] = lease
		}
	}()
	synctest.Wait()
}

func (c *crowd) release(name string) {
	c.t.Helper()
	c.mu.Lock()
	lease, ok := c.leases[name]
	delete(c.leases, name)
	c.mu.Unlock()
	require.True(c.t, ok, "%s holds nothing: %v", name, c.errs[name])
	lease.Release()
	synctest.Wait()
}

func (c *crowd) releaseAll() {
	for {
		c.mu.Lock()
		names := slices.Sorted(maps.Keys(c.leases))
		c.mu.Unlock()
		if len(names) == 0 {
			return
		}
		c.release(names[0])
	}
}

func (c *crowd) refused(name string, reason gate.Reason) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.ErrorIs(c.t, c.errs[name], reason, name)
}
