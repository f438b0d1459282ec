package inflight

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		name string
		e    evidence
		want Verdict
		sat  bool
	}{
		{"nothing", evidence{slow: time.Second}, Idle, false},
		{"in flight", evidence{inflight: 1, slow: time.Second}, Busy, false},
		{"a short queue", evidence{inflight: 6, queued: 3, queuedFor: 59999 * time.Millisecond, slow: time.Hour}, Busy, false},
		{"a queue of 60 s", evidence{inflight: 6, queued: 3, queuedFor: time.Minute, slow: time.Hour}, LocalQueue, true},
		{"a queue of 60 s, a usable slot free", evidence{inflight: 5, queued: 3, queuedFor: time.Minute, room: true, slow: time.Hour}, Busy, true},
		{"slow waits", evidence{inflight: 6, p90: 30*time.Second + 1, slow: 30 * time.Second}, LocalQueue, false},
		{"waits at the border", evidence{inflight: 6, p90: 30 * time.Second, slow: 30 * time.Second}, Busy, false},
		{"2 bad", evidence{inflight: 1, answers: 2, bad: 2, slow: time.Second}, Busy, false},
		{"3 bad of 30", evidence{inflight: 1, answers: 30, bad: 3, slow: time.Second}, UpstreamDegraded, false},
		{"3 bad of 31", evidence{inflight: 1, answers: 31, bad: 3, slow: time.Second}, Busy, false},
		{"both", evidence{inflight: 6, queued: 1, queuedFor: time.Minute, answers: 3, bad: 3, slow: time.Hour}, Both, true},
	} {
		if got := tc.e.verdict(); got != tc.want || tc.e.saturated() != tc.sat {
			t.Errorf("%s: %s, saturated %v; want %s, %v", tc.name, got, tc.e.saturated(), tc.want, tc.sat)
		}
	}
}

func TestAnswersOfTheLastMinute(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	good := gate.Sample{FirstByte: 100 * time.Millisecond, Status: 200}
	for _, tc := range []struct {
		name      string
		s         gate.Sample
		free      bool
		all, bads int64
	}{
		{"good", good, true, 1, 0},
		{"429 with a free slot", gate.Sample{FirstByte: 1, Status: 429}, true, 1, 1},
		{"429 in a full lane", gate.Sample{FirstByte: 1, Status: 429}, false, 1, 0},
		{"500", gate.Sample{FirstByte: 1, Status: 500}, true, 1, 1},
		{"404", gate.Sample{FirstByte: 1, Status: 404}, true, 1, 0},
		{"error", gate.Sample{Err: errors.New("reset")}, true, 1, 1},
		{"timeout", gate.Sample{Err: fmt.Errorf("call: %w", context.DeadlineExceeded)}, true, 1, 1},
		{"the caller left", gate.Sample{Err: fmt.Errorf("call: %w", context.Canceled)}, true, 0, 0},
	} {
		var a answers
		a.observe(start, tc.s, tc.free)
		if all, bad := a.lastMinute(start.Add(59 * time.Second)); all != tc.all || bad != tc.bads {
			t.Errorf("%s: %d of %d bad, want %d of %d", tc.name, bad, all, tc.bads, tc.all)
		}
		if all, bad := a.lastMinute(start.Add(70 * time.Second)); all != 0 || bad != 0 {
			t.Errorf("%s: after 70 s %d of %d bad, want none", tc.name, bad, all)
		}
	}
}

// An incident of half an hour stays one: the usual first-byte time does not follow.
func TestRisingFirstByte(t *testing.T) {
	var a answers
	now := time.Unix(1_800_000_000, 0)
	at := func(d time.Duration) { a.observe(now, gate.Sample{FirstByte: d, Status: 200}, true) }
	for range 100 {
		at(100 * time.Millisecond)
		now = now.Add(time.Second)
	}
	if _, bad := a.lastMinute(now); bad != 0 {
		t.Fatalf("%d bad answers of a steady back end", bad)
	}
	for i := range 1800 {
		at(time.Second)
		now = now.Add(time.Second)
		if i%600 < 60 {
			continue
		}
		if all, bad := a.lastMinute(now); bad < all {
			t.Fatalf("%d s into the incident %d of %d answers are bad", i, bad, all)
		}
	}
	for range 3600 - 1800 + 1 { // a full hour in all: that is how it is now
		at(time.Second)
		now = now.Add(time.Second)
	}
	for range 120 {
		at(time.Second)
		now = now.Add(time.Second)
	}
	if _, bad := a.lastMinute(now); bad != 0 {
		t.Errorf("%d bad answers two minutes after what is slow has become usual", bad)
	}
	for range 120 {
		at(100 * time.Millisecond)
		now = now.Add(time.Second)
	}
	if _, bad := a.lastMinute(now); bad != 0 {
		t.Errorf("%d bad answers after the incident", bad)
	}
}
