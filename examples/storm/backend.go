package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
)

// backEnd is what the app of a scenario calls: the command upstream with these flags. All
// calls take the same time, so that a latency less that time is a wait.
type backEnd struct {
	capacity int
	service  time.Duration
	// queues: calls over its capacity wait inside, first come first served. Else it collapses
	// there: it serves all calls at once, each slower in proportion, and works on for callers
	// that have left.
	queues bool
}

// upstreamCommand plays it.
const upstreamCommand = "github.com/headgate-go/headgate/examples/upstream"

// liveBackEnd is one that runs. A nil one is none.
type liveBackEnd struct {
	backEnd
	app    *app
	client *client
}

// start starts the program bin. stop must be called.
func (b *backEnd) start(ctx context.Context, bin string, env []string, log io.Writer) (*liveBackEnd, error) {
	if b == nil {
		return nil, nil
	}
	argv := []string{
		bin, "-addr", "127.0.0.1:0", "-capacity", strconv.Itoa(b.capacity),
		"-service", b.service.String(), "-jitter", "0",
	}
	if !b.queues {
		argv = append(argv, "-collapse")
	}
	a, err := start(ctx, argv, env, &memoryLimit{}, log)
	if err != nil {
		return nil, fmt.Errorf("the back end: %w", err)
	}
	return &liveBackEnd{*b, a, newClient(a.url, nil)}, nil
}

// flags are those with which the app calls it.
func (b *liveBackEnd) flags() []string {
	if b == nil {
		return nil
	}
	return []string{"-upstream", b.app.url}
}

func (b *liveBackEnd) stop() {
	if b != nil {
		b.client.close()
		b.app.stop()
	}
}

func (b *liveBackEnd) stats(ctx context.Context) (upstream.Stats, error) {
	var s upstream.Stats
	err := b.client.get(ctx, "/stats", &s)
	return s, err
}

// How long a back end may go on working for callers that have left, and how often it is
// looked at meanwhile.
const (
	settleTime   = 90 * time.Second
	settlePeriod = 100 * time.Millisecond
)

// settle waits until it works for nobody any more, and returns what it has done in all for
// so many calls.
func (b *liveBackEnd) settle(ctx context.Context, calls int) (*backEndResult, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.NewTicker(settlePeriod)
	defer tick.Stop()
	for {
		s, err := b.stats(ctx)
		if err != nil {
			return nil, fmt.Errorf("the back end: %w", err)
		}
		if s.Concurrent == 0 {
			return &backEndResult{b.backEnd, s, calls}, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("the back end: %d calls are not done after %v: %w", s.Concurrent, settleTime, ctx.Err())
		}
	}
}

// backEndResult is what a back end has done for an app.
type backEndResult struct {
	backEnd
	did   upstream.Stats
	calls int // that the app was asked for
}

func (r *backEndResult) work() time.Duration { return time.Duration(r.did.WorkMS) * time.Millisecond }

// ideal is the work that the calls are worth, each done once.
func (r *backEndResult) ideal() time.Duration { return time.Duration(r.calls) * r.service }

func (r *backEndResult) ratio() float64 { return float64(r.work()) / float64(r.ideal()) }

// retries are the calls that it has seen beyond one for each that reached it, which all
// did but those that were refused before.
func (r *backEndResult) retries(refused int) int64 {
	return max(0, r.did.Started+r.did.Refused-int64(r.calls-refused))
}
