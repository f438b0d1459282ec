package main

import (
	"fmt"
)

// traceColumns are those of a storm about shares.
func traceColumns(bool) []column {
	return []column{
		{head: "app", cell: func(w row) string { return w.name }},
		{head: "started", note: "calls whose turn came within the window; the others were waiting still when it ended, in the back end or in their tenants' lanes", cell: func(w row) string { return fmt.Sprintf("%d of %d", w.answered, w.total) }},
		{head: "refused", cell: func(w row) string { return w.refused.cell() }},
		{head: "capacity used", note: "service given within the window, of all that the slots could give", cell: func(w row) string {
			return fmt.Sprintf("%.1f %%", 100*w.fair.served.Seconds()/w.fair.room.Seconds())
		}},
		{head: "worst tenant", note: fmt.Sprintf("the least that a tenant had of its max-min share, in service time; the bar is %g", shareBar), cell: func(w row) string { return ratioCell(w.fair.worst()) }},
		{head: "median tenant", cell: func(w row) string { return ratioCell(w.fair.median()) }},
		{head: "largest tenant", note: "the one that wants the most", cell: func(w row) string { return ratioCell(w.fair.largest()) }},
		{head: fmt.Sprintf("under %g", shareBar), note: "tenants that had less of their share", cell: func(w row) string { return fmt.Sprintf("%d of %d", w.fair.below(), len(w.fair.tenants)) }},
		{head: "others' p50 wait", cell: func(w row) string { return w.fair.waits.cell(w.fair.waits.p50) }},
		{head: "others' p99 wait", note: "of the calls of tenants that want no more than their share, until their turn or the end of the window", cell: func(w row) string { return w.fair.waits.cell(w.fair.waits.p99) }},
		{head: "most waiting", note: "calls, at one moment", cell: func(w row) string { return fmt.Sprint(w.fair.waiting) }},
	}
}

func ratioCell(r float64) string { return fmt.Sprintf("%.3f", r) }

// shares says what there was to share.
func (s *storm) shares() string {
	b := s.scenario.backEnd
	text := fmt.Sprintf("In virtual time: a back end of %d slots, %v of service in the mean", b.capacity, b.service)
	if len(s.results) == 0 || s.results[0].fair == nil {
		return text
	}
	f := s.results[0].fair
	text += fmt.Sprintf("; %d tenants called, for %.0f s of service, of which %.0f s can be had", len(f.tenants), f.demand.Seconds(), f.room.Seconds())
	if f.level > 0 {
		n := 0
		for _, t := range f.tenants {
			if t.share < t.demand {
				n++
			}
		}
		text += fmt.Sprintf("; max-min shares are at most %.0f s, and of tenants that want more there are %d", f.level.Seconds(), n)
	}
	return text
}

// shareCharts are those of a storm about shares.
func shareCharts() []chart {
	all := callCharts(false)
	all[1].About = "headgate: calls at the back end (left), calls that wait in their tenant's lane (right)."
	all[2] = chart{"shares", "What each tenant had of its share", "Percent of its max-min share, the tenant with the least first."}
	return all
}

func (w row) shareSentence() string {
	return fmt.Sprintf("%s: of its max-min share the worst served tenant had %.3f, and the one in the middle %.3f; %d of %d had less than %g.",
		w.name, w.fair.worst(), w.fair.median(), w.fair.below(), len(w.fair.tenants), shareBar)
}

// fairnessJSON says how a back end was shared in a window of time. Ratios are what a tenant
// had of its max-min share, in service time.
type fairnessJSON struct {
	DemandS      float64       `json:"demand_s"`   // of service, in the window
	CapacityS    float64       `json:"capacity_s"` // that could be had
	ServedS      float64       `json:"served_s"`   // that was
	LevelS       *float64      `json:"level_s"`    // the share of tenants that want more than it
	Ratios       []float64     `json:"ratios"`     // of the tenants that called, the least first
	WorstRatio   float64       `json:"worst_ratio"`
	MedianRatio  float64       `json:"median_ratio"`
	LargestRatio float64       `json:"largest_ratio"` // of the tenant that wants the most
	Bar          float64       `json:"bar"`
	BelowBar     int           `json:"below_bar"`
	OthersWait   *latencyTimes `json:"others_wait"` // of tenants that want no more than their share
	MaxWaiting   int           `json:"max_waiting"`
}

// json is nil where there is nothing to say.
func (f *fairness) json() *fairnessJSON {
	if f == nil {
		return nil
	}
	j := &fairnessJSON{
		DemandS: f.demand.Seconds(), CapacityS: f.room.Seconds(), ServedS: f.served.Seconds(), LevelS: known(f.level.Seconds()),
		Ratios: []float64{}, WorstRatio: f.worst(), MedianRatio: f.median(), LargestRatio: f.largest(),
		Bar: shareBar, BelowBar: f.below(), OthersWait: f.waits.times(), MaxWaiting: f.waiting,
	}
	for _, t := range f.tenants {
		j.Ratios = append(j.Ratios, t.ratio())
	}
	return j
}
