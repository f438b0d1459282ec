package promgate

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
)

// laneOf is a snapshot of a lane that has counted n of everything.
func laneOf(lane string, number, n int64) inflight.LaneSnapshot {
	h := func() inflight.Histogram {
		return inflight.Histogram{Bounds: []time.Duration{time.Second}, Counts: []int64{n, n}, Sum: time.Duration(n)}
	}
	return inflight.LaneSnapshot{
		Lane: lane, Number: number, Granted: n, ShedReasons: map[gate.Reason]int64{gate.QueueTimeout: n}, Retries: n, Canceled: n, RepeatSheds: n,
		Waits: [3]inflight.Histogram{h(), h(), h()}, Holds: h(),
	}
}

// What a gate takes back is shown as it was: in a lane's own series and in "other".
func TestNothingFalls(t *testing.T) {
	table := newTable()
	shown := func(lane, other int64, n int64) {
		t.Helper()
		s := inflight.Snapshot{Total: laneOf("", 0, lane+other), Lanes: []inflight.LaneSnapshot{laneOf("a", 1, lane), laneOf("other", 2, other)}}
		rows := table.rows(&s)
		if assert.Len(t, rows, 2) {
			a, b := laneOf("a", 1, n), laneOf("other", 2, n)
			assert.Equal(t, countsOf(&a), rows[0].counts)
			assert.Equal(t, countsOf(&b), rows[1].counts)
		}
	}
	shown(3, 3, 3)
	shown(2, 2, 3)
	shown(3, 3, 3)
	shown(4, 4, 4)
}
