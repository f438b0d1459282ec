package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// period is how often the app is looked at.
const period = 50 * time.Millisecond

// point is a value at a time, in seconds from the start.
type point struct {
	T float64 `json:"t"`
	V float64 `json:"v"`
}

// status is the part of GET /headgate/status that a storm looks at.
type status struct {
	Admission struct {
		InflightBytes    int64  `json:"inflight_bytes"`
		MaxInflightBytes int64  `json:"max_inflight_bytes"`
		BudgetSource     string `json:"budget_source"`
		Waiting          int    `json:"waiting"`
	} `json:"admission"`
}

// samples is what was seen of an app while the storm went on.
type samples struct {
	memory  []point // bytes
	flight  []point // bytes: the client's count, or headgate's
	waiting []point // requests, with headgate

	peakMemory int64
	peakFlight int64 // headgate's; the client knows its own exactly
	budget     int64 // the last seen
	source     string
}

// watch samples until ctx ends. with is whether the app has a /headgate/status; the
// count of c stands in for it.
func watch(ctx context.Context, a *app, c *client, with bool) *samples {
	var s samples
	var wg sync.WaitGroup
	begin := time.Now()
	at := func() float64 { return time.Since(begin).Seconds() }
	// Two clocks, since an answer may be late when memory is scarce.
	wg.Go(func() {
		every(ctx, func() {
			if m, ok := readMemory(a.cmd.Process.Pid); ok {
				s.memory = append(s.memory, point{at(), float64(m.now)})
				s.peakMemory = max(s.peakMemory, m.peak)
			}
		})
	})
	wg.Go(func() {
		every(ctx, func() {
			if !with {
				now, _ := c.flight.read()
				s.flight = append(s.flight, point{at(), float64(now)})
				return
			}
			got, err := c.status(ctx)
			if err != nil {
				return // a gap in the line
			}
			t, adm := at(), got.Admission
			s.flight = append(s.flight, point{t, float64(adm.InflightBytes)})
			s.waiting = append(s.waiting, point{t, float64(adm.Waiting)})
			s.peakFlight = max(s.peakFlight, adm.InflightBytes)
			s.budget, s.source = adm.MaxInflightBytes, adm.BudgetSource
		})
	})
	wg.Wait()
	return &s
}

// every calls f now and then every period until ctx ends.
func every(ctx context.Context, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// status asks the app how headgate is.
func (c *client) status(ctx context.Context) (status, error) {
	var s status
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/headgate/status", http.NoBody)
	if err != nil {
		return s, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err
}
