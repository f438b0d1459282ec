package promgate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/prometheus/client_golang/prometheus"
)

// I10: admissions while somebody scrapes every 10 ms, against admissions alone, in the same
// run, by turns of 50 ms. "x" is the ratio of the times; "stall" is the longest single
// admission while scraped, and "alone" without, both with whatever else the machine does.
func BenchmarkScraped(b *testing.B) {
	hg := open(b, settings())
	for i := range 60 {
		use(b, hg.Outbound, fmt.Sprint("lane ", i))
	}
	registry := registered(b, hg)
	for _, g := range []struct {
		name string
		gate gate.Gate
	}{{"outbound", hg.Outbound}, {"bytes", hg.Bytes}} {
		b.Run(g.name, func(b *testing.B) {
			var alone, scraped turn
			for b.Loop() {
				alone.run(b, g.gate)
				stop := scraping(registry)
				scraped.run(b, g.gate)
				stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(alone.each(), "ns/alone")
			b.ReportMetric(scraped.each(), "ns/scraped")
			b.ReportMetric(scraped.each()/alone.each(), "x")
			b.ReportMetric(float64(alone.longest)/1e6, "ms-alone")
			b.ReportMetric(float64(scraped.longest)/1e6, "ms-stall")
		})
	}
}

// turn is what admissions took.
type turn struct {
	n             int64
	took, longest time.Duration
}

func (t *turn) each() float64 { return float64(t.took) / float64(t.n) }

func (t *turn) run(b *testing.B, g gate.Gate) {
	ctx, begun := context.Background(), time.Now()
	for at := begun; at.Sub(begun) < 50*time.Millisecond; t.n++ {
		lease, err := g.Acquire(ctx, gate.Request{Lane: "lane 7", Bytes: 1000})
		if err != nil {
			b.Fatal(err)
		}
		lease.Release()
		now := time.Now()
		t.longest = max(t.longest, now.Sub(at))
		at = now
	}
	t.took += time.Since(begun)
}

// scraping gathers every 10 ms until it is stopped.
func scraping(r prometheus.Gatherer) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				_, _ = r.Gather()
			}
		}
	}()
	return func() { close(end); <-ended }
}

// BenchmarkScrape is one scrape of a Headgate with so many lanes; of 1000 the most are in
// "other". The second figure is without what the registry does with it.
func BenchmarkScrape(b *testing.B) {
	for _, lanes := range []int{1, 50, 1000} {
		hg := open(b, settings())
		for i := range lanes {
			use(b, hg.Outbound, fmt.Sprint("lane ", i))
		}
		c, err := promgate.New(hg)
		if err != nil {
			b.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		b.Run(fmt.Sprintf("gather/%d", lanes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = registry.Gather()
			}
		})
		b.Run(fmt.Sprintf("collect/%d", lanes), func(b *testing.B) {
			b.ReportAllocs()
			ch := make(chan prometheus.Metric, 10_000)
			for b.Loop() {
				c.Collect(ch)
				for len(ch) > 0 {
					<-ch
				}
			}
		})
	}
}
