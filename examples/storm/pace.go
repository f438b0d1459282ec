package main

import (
	"context"
	"io"
	"time"
)

// pace returns r, which has size bytes, as it comes over an uplink of rate bytes per
// second from begin on: a Read waits until there is something to return. What nobody
// reads meanwhile piles up, as in a proxy, and is there at once. A rate of 0 is no
// pace. A Read fails when ctx ends.
func pace(ctx context.Context, r io.Reader, size, rate int64, begin time.Time) io.Reader {
	if rate == 0 {
		return r
	}
	return &paced{ctx: ctx, r: r, size: size, rate: float64(rate), begin: begin}
}

type paced struct {
	ctx   context.Context // of the request that the reader belongs to
	r     io.Reader
	size  int64
	rate  float64
	begin time.Time
	read  int64
}

// step is what a Read waits for: as much as comes in this time, or the rest.
const step = 50 * time.Millisecond

func (p *paced) Read(b []byte) (int, error) {
	want := min(p.size-p.read, int64(p.rate*step.Seconds())+1)
	if want <= 0 {
		return p.r.Read(b)
	}
	due := p.begin.Add(time.Duration(float64(p.read+want) / p.rate * float64(time.Second)))
	if wait := time.Until(due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		}
	}
	there := max(int64(time.Since(p.begin).Seconds()*p.rate)-p.read, want)
	n, err := p.r.Read(b[:min(int64(len(b)), there)])
	p.read += int64(n)
	return n, err
}
