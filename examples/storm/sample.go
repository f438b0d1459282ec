package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/pressure"
)

// period is how often the app is looked at.
const period = 50 * time.Millisecond

// point is a value at a time, in seconds from the start.
type point struct {
	T float64 `json:"t"`
	V float64 `json:"v"`
}

// state is what an app says of itself.
type state struct {
	bytes   int64 // of the bodies it has let in
	budget  int64 // of such bytes, 0 = it has none
	source  string
	waiting int // requests that it has not let in yet

	pressure *pressure.Snapshot // nil = it does not say
}

// ask asks an app for its state, without waiting in a queue of the app.
type ask func(context.Context, *client) (state, error)

// askHeadgate reads the gateway's GET /headgate/status.
func askHeadgate(ctx context.Context, c *client) (state, error) {
	var got struct {
		Admission struct {
			InflightBytes    int64  `json:"inflight_bytes"`
			MaxInflightBytes int64  `json:"max_inflight_bytes"`
			BudgetSource     string `json:"budget_source"`
			Waiting          int    `json:"waiting"`
		} `json:"admission"`
		Pressure *pressure.Snapshot `json:"pressure"`
	}
	err := c.get(ctx, "/headgate/status", &got)
	adm := got.Admission
	s := state{bytes: adm.InflightBytes, budget: adm.MaxInflightBytes, source: adm.BudgetSource, waiting: adm.Waiting}
	s.pressure = got.Pressure
	return s, err
}

// askPeer reads GET /status of the app with another library.
func askPeer(ctx context.Context, c *client) (state, error) {
	var got struct {
		InflightBytes int64 `json:"inflight_bytes"`
		Waiting       int   `json:"waiting"`
	}
	err := c.get(ctx, "/status", &got)
	return state{bytes: got.InflightBytes, waiting: got.Waiting}, err
}

// samples is what was seen of an app while the storm went on.
type samples struct {
	memory  []point // bytes
	flight  []point // bytes: what the app says, or the client's count
	waiting []point // requests, where the app says it: for room, or, with a back end, in a lane or for a slot
	atBack  []point // calls at the back end, where there is one

	peakMemory int64
	peakFlight int64 // what the app has said; the client knows its own exactly
	budget     int64 // the last seen
	source     string
	pressed    *pressed // nil = the app does not say
}

// pressed is how close to its memory limit an app was, as it says.
type pressed struct {
	worst  pressure.Severity
	signal string // that raised it or kept it up, "" while normal
	// highest is the highest value of each signal that was known, by its name.
	highest map[string]float64
}

// see takes what the app said next. p may be nil, and the first time it is.
func (p *pressed) see(s *pressure.Snapshot) *pressed {
	if s == nil {
		return p
	}
	if p == nil {
		p = &pressed{highest: map[string]float64{}}
	}
	if s.Severity > p.worst {
		p.worst, p.signal = s.Severity, s.Signal
	}
	for _, sig := range s.Signals {
		if sig.Value != nil {
			p.highest[sig.Name] = max(p.highest[sig.Name], *sig.Value)
		}
	}
	return p
}

// askCalls reads of GET /headgate/status how many calls wait, in their tenants' lanes or for
// a slot.
func askCalls(ctx context.Context, c *client) (state, error) {
	var got struct {
		Lanes struct {
			Mode   gate.Mode `json:"mode"`
			Queued int       `json:"queued_count"`
		} `json:"lanes"`
		Inflight inflight.Snapshot `json:"inflight"`
	}
	err := c.get(ctx, "/headgate/status", &got)
	var s state
	if got.Lanes.Mode == gate.Enforce { // else nobody waits there, whatever the books say
		s.waiting = got.Lanes.Queued
	}
	for _, l := range got.Inflight.Lanes {
		s.waiting += l.Queued
	}
	return s, err
}

// watch samples until ctx ends. Where ask is nil, the count of c stands in for what
// the app does not say. With a back end it is the calls there and the queue before it
// that are looked at, and no bodies.
func watch(ctx context.Context, a *app, c *client, ask ask, back *liveBackEnd) *samples {
	if back != nil && ask != nil {
		ask = askCalls
	}
	var s samples
	var wg sync.WaitGroup
	begin := time.Now()
	at := func() float64 { return time.Since(begin).Round(time.Millisecond).Seconds() }
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
			if ask == nil {
				now, _ := c.flight.read()
				s.flight = append(s.flight, point{at(), float64(now)})
				return
			}
			got, err := ask(ctx, c)
			if err != nil {
				return // a gap in the line
			}
			t := at()
			s.flight = append(s.flight, point{t, float64(got.bytes)})
			s.waiting = append(s.waiting, point{t, float64(got.waiting)})
			s.peakFlight = max(s.peakFlight, got.bytes)
			s.budget, s.source = got.budget, got.source
			s.pressed = s.pressed.see(got.pressure)
		})
	})
	wg.Go(func() {
		if back == nil {
			return
		}
		every(ctx, func() {
			if got, err := back.stats(ctx); err == nil {
				s.atBack = append(s.atBack, point{at(), float64(got.Concurrent)})
			}
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

// get reads JSON from the app into to. Nothing is waited for longer than 2 s.
func (c *client) get(ctx context.Context, path string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", path, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(to)
}
