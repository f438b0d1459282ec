package monitor

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// history is the JSON of the history. All its lists have a place for each sample, the
// oldest first. What a sample says happened did so since the sample before.
type history struct {
	Title    string    `json:"title"`
	PeriodS  float64   `json:"period_s"`
	HistoryS float64   `json:"history_s"`
	AgeS     []float64 `json:"age_s"` // of each sample, in seconds

	Admission *bytesHistory    `json:"admission,omitempty"`
	Pressure  *pressureHistory `json:"pressure,omitempty"`
	Lanes     *limitHistory    `json:"lanes,omitempty"`
	Inflight  *callsHistory    `json:"inflight,omitempty"`
}

// refusals are those of one gate. Reasons that were never met in all the time are left out.
type refusals struct {
	Sheds       map[gate.Reason][]uint32 `json:"sheds_by_reason"`
	WouldRefuse []uint32                 `json:"would_refuse"`
}

type bytesHistory struct {
	InflightBytes    []int64 `json:"inflight_bytes"`
	MaxInflightBytes []int64 `json:"max_inflight_bytes"`
	WaitingBytes     []int64 `json:"waiting_bytes"`
	refusals
}

type pressureHistory struct {
	Severity []int `json:"severity"` // 0 normal, 1 high, 2 critical
}

type limitHistory struct {
	Limit        []int64 `json:"limit"`
	InflightCost []int64 `json:"inflight_cost"`
	QueuedCost   []int64 `json:"queued_cost"`
	refusals
}

type callsHistory struct {
	Inflight []int64 `json:"inflight"`
	Queued   []int64 `json:"queued"`
	refusals
	Lanes []laneHistory `json:"lanes"` // the busiest, at most 20
}

type laneHistory struct {
	Lane     string  `json:"lane"`
	Limit    []int32 `json:"limit"`
	Inflight []int32 `json:"inflight"`
	Queued   []int32 `json:"queued"`
}

// report returns the history as it is now.
func (r *recorder) report(c Config) history {
	v, now := r.view.Load(), time.Since(r.epoch)
	// Samples that were taken late, on a machine that slept, are too old before they are
	// too many.
	samples := v.samples
	for len(samples) > 0 && now-samples[0].at > c.History {
		samples = samples[1:]
	}
	h := history{
		Title: c.Title, PeriodS: c.Period.Seconds(), HistoryS: c.History.Seconds(),
		AgeS: column(samples, func(s *sample) float64 {
			return math.Round((now-s.at).Seconds()*1000) / 1000
		}),
	}
	if r.gates.Bytes != nil {
		h.Admission = &bytesHistory{
			column(samples, func(s *sample) int64 { return s.bytes }),
			column(samples, func(s *sample) int64 { return s.budget }),
			column(samples, func(s *sample) int64 { return s.waitingBytes }),
			refusalsOf(samples, byAdmission),
		}
	}
	if r.gates.Memory != nil {
		h.Pressure = &pressureHistory{column(samples, func(s *sample) int { return int(s.severity) })}
	}
	if r.gates.Tenants != nil {
		h.Lanes = &limitHistory{
			column(samples, func(s *sample) int64 { return s.limit }),
			column(samples, func(s *sample) int64 { return s.cost }),
			column(samples, func(s *sample) int64 { return s.queuedCost }),
			refusalsOf(samples, byLanes),
		}
	}
	if r.gates.Outbound != nil {
		h.Inflight = &callsHistory{
			column(samples, func(s *sample) int64 { return int64(s.calls) }),
			column(samples, func(s *sample) int64 { return int64(s.queued) }),
			refusalsOf(samples, byInflight), v.lanes(samples),
		}
	}
	return h
}

// column returns one number of each sample.
func column[T any](samples []*sample, of func(*sample) T) []T {
	c := make([]T, len(samples))
	for i, s := range samples {
		c[i] = of(s)
	}
	return c
}

func refusalsOf(samples []*sample, by int) refusals {
	r := refusals{map[gate.Reason][]uint32{}, column(samples, func(s *sample) uint32 { return s.would[by] })}
	for i, reason := range reasons {
		for _, s := range samples {
			if s.sheds[by][i] > 0 {
				r.Sheds[reason] = column(samples, func(s *sample) uint32 { return s.sheds[by][i] })
				break
			}
		}
	}
	return r
}

// lanes returns the lanes that have a place. Before it got the place a lane reads 0.
func (v *view) lanes(samples []*sample) []laneHistory {
	out := []laneHistory{}
	for i, n := range v.names {
		if n.lane == "" {
			continue
		}
		of := func(field func(cell) int32) []int32 {
			return column(samples, func(s *sample) int32 {
				if s.lanes[i].id != n.id {
					return 0
				}
				return field(s.lanes[i])
			})
		}
		out = append(out, laneHistory{
			n.lane,
			of(func(c cell) int32 { return c.limit }), of(func(c cell) int32 { return c.inflight }), of(func(c cell) int32 { return c.queued }),
		})
	}
	return out
}
