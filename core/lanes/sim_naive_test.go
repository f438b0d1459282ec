package lanes

import "testing"

// naive is what the law would be if both averages simply moved with every window, the
// long one frozen while the gradient is high.
type naive struct{ short, long float64 }

// close is the limit after a window with such a mean latency, 0 = none.
func (n *naive) close(limit int64, latency float64) int64 {
	if latency == 0 {
		return limit
	}
	if n.long == 0 {
		n.short, n.long = latency, latency
	}
	n.short += 0.5 * (latency - n.short)
	if n.short/n.long-1 >= 0.25 {
		return max(limit*4/5, 8)
	}
	n.long += 0.1 * (latency - n.long)
	return min(limit+1, 1000)
}

// runNaive is run with a naive law.
func (p *plant) runNaive(n *naive, windows int) {
	p.law.algorithm = Fixed
	for range windows {
		p.done = p.done[:0]
		p.run(1)
		mean := 0.0
		for _, d := range p.done {
			mean += d.Seconds() / float64(len(p.done))
		}
		p.law.limit = n.close(p.law.limit, mean)
		p.limits[len(p.limits)-1] = p.law.limit
	}
}

// Why the long average may not simply follow: the limit grows slowly enough for it to
// keep up, and latency that the limit makes becomes the usual one. And why samples are
// counted: where they differ much, noise alone keeps the limit at its least.
func TestSimPlainAveragesDoNotDo(t *testing.T) {
	alone(t)
	for _, c := range []struct {
		jitter float64
		wrong  func(mean float64) bool
		what   string
	}{
		{0.1, func(mean float64) bool { return mean > 3*64 }, "drifts up"},
		{0.8, func(mean float64) bool { return mean < 0.5*64 }, "is kept down by noise"},
	} {
		p := newPlant(t, 11, func(p *plant) { p.jitter = c.jitter })
		if c.jitter > 0.5 {
			p.capacity, p.callers = 64, 200
		}
		p.runNaive(&naive{}, 900)
		mean, least, most := p.mean(300)
		ours := newPlant(t, 11, func(p *plant) { p.jitter = c.jitter })
		ours.run(900)
		ourMean, _, _ := ours.mean(300)
		t.Logf("jitter %.1f, capacity 64, after 10 minutes: plain averages %.0f (%d to %d), ours %.0f", c.jitter, mean, least, most, ourMean)
		if !c.wrong(mean) {
			t.Logf("plain averages did not go wrong this way: it %s", c.what)
		}
		if ourMean < 0.75*64 || ourMean > 1.3*64 {
			t.Errorf("jitter %.1f: ours is at %.0f", c.jitter, ourMean)
		}
	}
}
