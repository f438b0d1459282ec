package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The retry scenario: three panels of 15 calls each arrive at once, while somebody chats,
// and the back end serves 8 at a time. The app's client has a timeout of 3 service times
// and makes 3 attempts.
//
// Without headgate all 45 reach the back end together. It serves them at once, each 45/8
// times slower: none is done in time. The client leaves and sends them again, while the
// back end works on for nobody, and so does the chat. With headgate 8 are there at a
// time, none for longer than a service time, and the others wait above their timeouts:
// 45 calls in the 7 slots that are not kept for people are 7 service times.
//
// At a service time of 1 s the calls arrive for 15 s. Without headgate the last attempts
// end some 10 s later, and the back end some seconds after that: half a minute in all.
const (
	retryService  = time.Second
	retryLength   = 15 // service times
	retryCapacity = 8
	retryPanels   = 3
	retryPrompts  = 15
	retryTimeout  = 3 // service times
	retryAttempts = 3
	retryWait     = time.Minute
)

func retry() scenario { return retryAt(retryService) }

// retryAt is the scenario in service times of its own.
func retryAt(service time.Duration) scenario {
	return scenario{
		name: "retry",
		about: fmt.Sprintf("%d panels of %d calls at once and a chat every %v, at a back end of capacity %d and service time %v, with a timeout of %v and %d attempts",
			retryPanels, retryPrompts, service, retryCapacity, service, retryTimeout*service, retryAttempts),
		length: retryLength * service,
		config: fmt.Sprintf(`inflight:
  max_inflight: %d
  interactive_reserve: 1
  queue_timeout: %v
upstream:
  timeout: %v
  attempts: %d
tenants:
  - {name: people, key: %s, interactive: true}
  - {name: panels, key: %s}
`, retryCapacity, retryWait, retryTimeout*service, retryAttempts, chatKey, panelKey),
		wait: retryWait,
		plan: func(_ *rand.Rand, length time.Duration) []call {
			var calls []call
			for at := service / 2; at < length; at += service {
				calls = append(calls, call{at: at, kind: chat})
			}
			for range retryPanels {
				calls = append(calls, call{at: length * 2 / 10, kind: panel, prompts: retryPrompts})
			}
			return calls
		},
		columns: callColumns,
		backEnd: &backEnd{capacity: retryCapacity, service: service},
	}
}

// callColumns are those of scenarios about calls to a back end.
func callColumns(bool) []column {
	return []column{
		{head: "app", cell: func(w row) string { return w.name }},
		{head: "answered", note: "chat completions; those of a panel are counted one by one", cell: func(w row) string { return fmt.Sprintf("%d of %d", w.answered, w.total) }},
		{head: "failed", note: "refused, answered with an error, or not answered, after all attempts, by reason", cell: func(w row) string { return w.failed().cell() }},
		{head: "upstream work / ideal", note: "what the back end has worked, for whomever, against the calls x the service time", cell: row.workCell},
		{head: "most at once", note: "calls at the back end, those included whose client has left, and its capacity", cell: func(w row) string {
			return fmt.Sprintf("%d of %d", w.back.did.MaxConcurrent, w.back.capacity)
		}},
		{head: "retries", note: "calls that the back end has seen beyond one for each", cell: func(w row) string { return fmt.Sprint(w.back.retries(w.refused.sum())) }},
		{head: "chat p50 wait", cell: func(w row) string { return w.chat.cell(w.chat.p50) }},
		{head: "chat p90 wait", note: "of all chats, failed ones too: from when it was due to its end, less the service time", cell: func(w row) string { return w.chat.cell(w.chat.p90) }},
		{head: "p99", note: "of the answered, from when a call was due to the end of its answer; a panel's come together", cell: func(w row) string { return w.all.cell(w.all.p99) }},
		{head: "end", note: "how the app ended", cell: func(w row) string { return w.end }},
	}
}

func (w row) workCell() string {
	return fmt.Sprintf("%.1f s / %.1f s = %.2f", w.back.work().Seconds(), w.back.ideal().Seconds(), w.back.ratio())
}

// failed are all that were not answered.
func (w row) failed() counts {
	all := counts{}
	for _, c := range []counts{w.refused, w.wrong, w.lost} {
		for why, n := range c {
			all[why] += n
		}
	}
	return all
}
