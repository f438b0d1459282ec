package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is said of one lane is in force for those who wait in it, and for nobody else: its
// bound on the queue, its timeout, its reserve and its limit. A file that cannot work
// changes nothing.
func TestInflightLanesAreHot(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	a := start(t, "inflight: {max_inflight: 1, models: [large, small]}", "-upstream", back.URL)
	config := func(models, lane string) string {
		return "inflight: {max_inflight: 1, models: [" + models + "], lanes: {'" + back.URL + "|large': {" + lane + "}}}"
	}
	applied := 0
	apply := func(yaml string) {
		t.Helper()
		a.write(yaml)
		applied++
		require.Eventually(t, func() bool { return strings.Count(a.log.String(), "config applied") == applied }, hang, 5*time.Millisecond)
	}
	var calls sync.WaitGroup
	refused := func(resp reply, text string) {
		assert.Equal(t, 503, resp.StatusCode, text)
		assert.Equal(t, string(gate.QueueTimeout), resp.Header.Get(gate.MarkerHeader))
	}
	runs := func(n, queued int) func(inflight.LaneSnapshot) bool {
		return func(l inflight.LaneSnapshot) bool { return l.Inflight == n && l.Queued == queued }
	}
	for _, model := range []string{"large", "small"} {
		a.chat(&calls, model, a.answered)
		a.untilLane(model, "one runs", runs(1, 0))
	}
	a.chat(&calls, "small", a.answered)
	a.untilLane("small", "one waits", runs(1, 1))

	apply(config("large, small", "max_queue: 1, queue_timeout: 1h"))
	a.chat(&calls, "large", refused)
	a.untilLane("large", "one waits", runs(1, 1))
	resp, text := a.ask(apis[0].path, `{"model": "large"}`)
	assert.Equal(t, 503, resp.StatusCode, text)
	assert.Equal(t, string(gate.QueueFull), resp.Header.Get(gate.MarkerHeader))

	apply(config("large, small", "queue_timeout: 1ms"))
	a.untilLane("large", "its waiter's time is over", runs(1, 0))
	a.untilLane("small", "the other's is not", runs(1, 1))

	apply(config("large, small", "max_inflight: 3, interactive_reserve: 2"))
	for range 2 {
		a.chat(&calls, "large", a.answered)
	}
	a.untilLane("large", "two wait for the one slot that is theirs", func(l inflight.LaneSnapshot) bool {
		return l.Limit == 3 && l.Reserve == 2 && l.Queued == 2 && l.Inflight == 1
	})
	a.write(config("large, small", "max_inflight: -1"))
	a.logs("Lanes[\\\"" + fmt.Sprintf("%.40s", back.URL+"|large"))
	a.untilLane("large", "nothing has changed", func(l inflight.LaneSnapshot) bool { return l.Limit == 3 && l.Queued == 2 })

	apply(config("large, small", "max_inflight: 3, interactive_reserve: 0"))
	a.untilLane("large", "all run", runs(3, 0))
	apply(config("large", "max_inflight: 0"))
	a.chat(&calls, "large", a.answered)
	a.untilLane("large", "it has no limit", runs(4, 0))
	a.chat(&calls, "small", a.answered) // it is not on the list any more
	a.untilLane("other", "one runs", runs(1, 0))
	a.untilLane("small", "its waiter has stayed", runs(1, 1))
	close(next)
	calls.Wait()
	for _, model := range []string{"large", "small", "other"} {
		a.untilLane(model, "nothing is left", runs(0, 0))
	}
	a.untilZero()
}
