package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bars of the retry storm, against the real gateway and the real back end: with
// headgate every call succeeds, the back end works on each once, and a chat hardly
// waits. Without it everything collapses.
func TestRetryStorm(t *testing.T) {
	long(t, "builds the gateway and the back end and plays a storm of some 25 s")
	// Three service times must be longer than a busy machine may stall.
	const service = 600 * time.Millisecond
	s, _ := playLive(t, retryAt(service), "-duration", "6s")
	bare, with := summarise(s.results[0]), summarise(s.results[1])
	for _, w := range []row{bare, with} {
		assert.Equal(t, 55, w.total, w.name)
		assert.Equal(t, w.total, w.answered+w.failed().sum(), w.name)
		assert.Equal(t, 10, w.chat.n)
		assert.Equal(t, "exit 0", w.end)
		assert.Empty(t, w.lost)
	}
	assert.Equal(t, 55, with.answered, "all calls succeed: %v", with.failed())
	assert.LessOrEqual(t, with.back.ratio(), 1.05)
	assert.GreaterOrEqual(t, with.back.ratio(), 0.99, "nothing is left out of the count")
	assert.LessOrEqual(t, with.back.did.MaxConcurrent, retryCapacity)
	assert.LessOrEqual(t, with.chat.p90, 3*service, "the bar is 1.5 on a quiet machine")
	assert.Greater(t, mostWaiting(s.results[1]), 30.0, "the others wait in the queue")

	assert.Less(t, bare.answered, bare.total/2)
	assert.Equal(t, "upstream_timeout", first(bare.failed()), bare.failed())
	assert.Greater(t, bare.back.ratio(), 1.5)
	assert.Greater(t, bare.back.did.MaxConcurrent, 4*retryCapacity)
	assert.Positive(t, bare.back.retries(0))
}

// first is the most frequent.
func first(c counts) string {
	name, _, _ := strings.Cut(c.String(), " ")
	return name
}

// A storm of calls beside one of bodies: each has its own columns and charts, and what
// they mean is said for each.
func TestReportOfCalls(t *testing.T) {
	r := newReport(options{seed: 1, against: "chi"}, []*storm{exampleStorms()[1], exampleRetry()})
	text := tableOf(t, r, "Scenario calls; 45 requests, seed 1")
	assert.True(t, strings.HasPrefix(text, `Each app: as an example

app   answered  failed                                                         upstream work / ideal   most at once  retries  chat p50 wait  chat p90 wait  p99    end
bare  2 of 45   43 (upstream_timeout 40, connection reset 2, queue_timeout 1)  90.0 s / 45.0 s = 2.00  130 of 8      86       200 ms         8.0 s          1.2 s  exit 0
`), text)
	assert.Contains(t, text, "other libraries: not played")
	assert.Regexp(t, `(?s)\nScenario other\nlimit: .*answered: 200 with.*\n\nScenario retry\nanswered: chat completions; .*end: how the app ended\n$`, text)

	page, err := r.html()
	require.NoError(t, err)
	for _, id := range []string{"memory-0", "latency-0", "backend-1", "queue-1", "chat-1", "latency-1"} {
		assert.Equal(t, 1, strings.Count(string(page), `id="`+id+`"`), id)
	}
	assert.NotContains(t, string(page), `id="memory-1"`)
	assert.Contains(t, string(page), `"capacity":8`)
	for _, c := range callCharts(false) {
		assert.Contains(t, reportJS, `draw("`+c.ID+`", at,`)
	}

	a := newResults(options{}, []*storm{exampleRetry()}).Scenarios[0].Apps[0]
	assert.Equal(t, &backEndJSON{
		Capacity: 8, ServiceS: 1, Calls: 130, Retries: 86, MaxConcurrent: 130, WorkS: 90, WastedS: 80, IdealWorkS: 45, WorkRatio: 2,
	}, a.BackEnd)
	assert.Equal(t, &latencyTimes{0.2, 8, 8, 8}, a.ChatWait)
	assert.Nil(t, a.SmallLatency)
	assert.Len(t, a.Series.ChatS, 4)
}

// exampleRetry is of made-up results.
func exampleRetry() *storm {
	sc := retry()
	s := &storm{title: "Scenario calls", scenario: sc, length: sc.length, calls: make([]call, 45), limit: "no memory limit"}
	ends := append(outcomes(39, wrong, "upstream_timeout", 9*time.Second), outcomes(2, lost, "connection reset", time.Second)...)
	for _, o := range []outcome{
		{took: 900 * time.Millisecond, verdict: answered}, {took: 1200 * time.Millisecond, verdict: answered},
		{took: 4500 * time.Millisecond, verdict: refused, why: "queue_timeout"}, {took: 9 * time.Second, verdict: wrong, why: "upstream_timeout"},
	} {
		o.kind = chat
		ends = append(ends, o)
	}
	s.results = []result{{
		name: "bare", outcomes: ends, end: "exit 0", samples: &samples{atBack: []point{{0, 3}}},
		back: &backEndResult{*sc.backEnd, upstream.Stats{Started: 130, MaxConcurrent: 130, WorkMS: 90_000, WastedMS: 80_000}, 45},
	}}
	return s
}

// The same panels and chats whatever the seed, in service times.
func TestRetryPlan(t *testing.T) {
	for _, sc := range []scenario{retry(), retryAt(200 * time.Millisecond)} {
		calls := sc.plan(rand.New(rand.NewPCG(1, 1)), sc.length)
		assert.Equal(t, 60, requests(calls))
		var chats []time.Duration
		panels := 0
		for _, k := range calls {
			if k.kind == chat {
				chats = append(chats, k.at)
			} else {
				panels++
				assert.Equal(t, 15, k.prompts)
				assert.Equal(t, 3*sc.backEnd.service, k.at)
			}
		}
		assert.Equal(t, 3, panels)
		require.Len(t, chats, 15)
		for i := range chats[1:] {
			assert.Equal(t, sc.backEnd.service, chats[i+1]-chats[i])
		}
	}
}
