package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bar of the tenant flood, against the real gateway and the real back end: with the
// lanes in enforce each of the twenty waits at most ceil(21/c) + 1 service times. With them
// off all stand behind the flood. Nobody is refused either way, and the back end is as busy.
func TestTenantStorm(t *testing.T) {
	long(t, "builds the gateway and the back end and plays a storm of some 40 s")
	// The bar leaves more than one service time to spare, which must be longer than a busy
	// machine may stall.
	const (
		service = 800 * time.Millisecond
		many    = 160
	)
	s, written := playLive(t, tenantStormAt(service, many), "-scenario", "tenants")
	off, with := summarise(s.results[0]), summarise(s.results[1])
	assert.Equal(t, []string{"lanes off", "headgate"}, []string{off.name, with.name})
	for _, w := range []row{off, with} {
		assert.Equal(t, many+20, w.total, w.name)
		assert.Equal(t, w.total, w.answered, "%s: %v", w.name, w.failed())
		assert.Equal(t, 20, w.chat.n)
		assert.Equal(t, many, w.flood.n)
		assert.Equal(t, "exit 0", w.end)
		assert.InDelta(t, 1, w.back.ratio(), 0.05, "the back end has done each call once")
	}
	assert.LessOrEqual(t, with.chat.max, 4*service, "ceil(21/8) + 1")
	assert.LessOrEqual(t, with.back.did.MaxConcurrent, tenantsCapacity)
	assert.Greater(t, mostWaiting(s.results[1]), 100.0, "the flood waits in its lane")

	waits := chatWaits(s.results[0].outcomes, service)
	assert.Greater(t, waits[0], 3*4*service, "each of the twenty stands behind the flood")
	assert.Greater(t, off.back.did.MaxConcurrent, 100, "and it waits in the back end")
	assert.Empty(t, s.results[0].samples.waiting)
	assert.Equal(t, with.flood.max.Seconds(), written.Scenarios[0].Apps[1].FloodLatency.MaxS)
}

// The same flood and twenty others with a key of their own each whatever the seed, and the
// flood first. What a lane charges for such a call is as assumed.
func TestTenantPlan(t *testing.T) {
	assert.EqualValues(t, smallCall, lanes.Price(lanes.Features{Bytes: 60, Messages: 1}))
	assert.Equal(t, 4, tenantsBar)
	sc := tenantStorm()
	for length, times := range map[time.Duration]int{0: 1, tenantsEvery - 1: 1, tenantsEvery: 2} {
		calls := sc.plan(rand.New(rand.NewPCG(1, 1)), length)
		require.Len(t, calls, times*1020)
		keys := map[string]int{}
		for _, k := range calls[:1020] {
			keys[k.key]++
			if k.kind == flood {
				assert.Zero(t, k.at)
			} else {
				assert.Equal(t, chat, k.kind)
				assert.Equal(t, 1100*time.Millisecond, k.at)
			}
		}
		assert.Len(t, keys, 21)
		assert.Equal(t, 1000, keys[floodKey])
		for _, text := range []string{sc.config, sc.lanesOff} {
			for key := range keys {
				assert.Equal(t, 1, strings.Count(text, ", key: "+key+"}\n"))
			}
		}
	}
}

// In place of the bare app there is one with the lanes off, which is not told to be bare, in
// this scenario alone.
func TestLanesOffInPlaceOfBare(t *testing.T) {
	s, argv := small(t, "serve")
	var log bytes.Buffer
	s.log = &sharedWriter{to: &log}
	apps := bareAndHeadgate(s.file, argv...)
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{}, apps))
	assert.Equal(t, 1, strings.Count(log.String(), "-bare"))
	assert.Equal(t, []string{"bare", "headgate"}, []string{s.results[0].name, s.results[1].name})

	log.Reset()
	s.scenario.lanesOff, s.results = "lanes:\n  mode: off\n", nil
	seen := ""
	p := progress{to: writerFunc(func([]byte) {
		text, _ := os.ReadFile(s.file) // of the app that is on; none at first
		seen += string(text) + "\n"
	})}
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, p, apps))
	assert.NotContains(t, log.String(), "-bare")
	assert.Equal(t, []string{"lanes off", "headgate"}, []string{s.results[0].name, s.results[1].name})
	assert.Empty(t, s.results[0].samples.waiting, "it has no queue to speak of")
	assert.Contains(t, seen, s.scenario.lanesOff)
	assert.Contains(t, seen, "queue_timeout: 30s")
	assert.Equal(t, "bare", apps[0].name, "for the next storm")
}

// The table and the charts of a flood, of made-up results.
func TestReportOfFlood(t *testing.T) {
	r := newReport(options{seed: 1}, []*storm{exampleRetry(), exampleFlood()})
	text := tableOf(t, r, "Scenario flood; 1020 requests, seed 1")
	assert.True(t, strings.HasPrefix(text, `Each app: as an example

app        answered      refused or failed      others' p50 wait  others' longest wait  in service times  flood's last  most at once  end
lanes off  1015 of 1020  5 (tenant_queue_full)  9.8 s             19.8 s                99.0, bar 4       1.0 s         1015 of 8     exit 0
nobody     0 of 0        0                      -                 -                     -                 -             0 of 8        exit 0
`), text)
	assert.Regexp(t, `\nScenario tenants\nanswered: .*\n(.*\n)*in service times: that longest wait, and the bar: ceil\(21 tenants / capacity\) \+ 1\n`, text)

	page, err := r.html()
	require.NoError(t, err)
	for _, id := range []string{"chat-0", "others-1", "backend-1", "queue-1", "latency-1"} {
		assert.Equal(t, 1, strings.Count(string(page), `id="`+id+`"`), id)
	}
	assert.NotContains(t, string(page), `id="chat-1"`)
	assert.NotContains(t, string(page), `id="others-0"`)
	assert.Equal(t, 1, strings.Count(string(page), `"flooded":true`))
	for _, c := range callCharts(true) {
		assert.Contains(t, reportJS, `draw("`+c.ID+`", at,`)
	}
	others := r.Sections[1].Data.Series[0].Others
	assert.Len(t, others, 20)
	assert.Equal(t, point{20, 100}, others[19])

	a := newResults(options{}, []*storm{exampleFlood()}).Scenarios[0].Apps
	assert.Equal(t, &latencyTimes{1, 1, 1, 1}, a[0].FloodLatency)
	assert.Equal(t, &latencyTimes{9.8, 17.8, 19.8, 19.8}, a[0].ChatWait)
	assert.Nil(t, a[1].FloodLatency)
	assert.Nil(t, a[1].ChatWait)
}

// exampleFlood is of made-up results: of an app, and of one that nobody asked anything.
func exampleFlood() *storm {
	sc := tenantStorm()
	ends := slices.Concat(outcomes(995, answered, "", time.Second), outcomes(5, refused, "tenant_queue_full", 0))
	for i := range ends {
		ends[i].kind = flood
	}
	for i := range 20 {
		ends = append(ends, outcome{kind: chat, verdict: answered, took: time.Duration(i+1) * time.Second})
	}
	calls := make([]call, 1020)
	calls[7].kind = flood
	return &storm{title: "Scenario flood", scenario: sc, calls: calls, results: []result{
		{name: lanesOff, outcomes: ends, end: "exit 0", samples: &samples{}, back: &backEndResult{*sc.backEnd, upstream.Stats{Started: 1015, MaxConcurrent: 1015}, 1020}},
		{name: "nobody", end: "exit 0", samples: &samples{}, back: &backEndResult{*sc.backEnd, upstream.Stats{}, 0}},
	}}
}
