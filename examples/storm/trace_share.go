package main

import (
	"cmp"
	"slices"
	"time"
)

// maxMin divides a capacity among demands so that no part can be made larger without
// taking from one that is no larger: water is poured into all of them alike, and who has
// what it asked for takes no more. It knows nothing of queues or gates. A part is below
// its demand only where it is level, the largest part that there is; level is 0 where
// everybody has what it asked for.
func maxMin(demand []time.Duration, capacity time.Duration) (parts []time.Duration, level time.Duration) {
	order := make([]int, len(demand))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(demand[a], demand[b]) })
	parts = make([]time.Duration, len(demand))
	left := capacity
	for n, i := range order {
		even := left / time.Duration(len(order)-n)
		if parts[i] = demand[i]; demand[i] > even {
			parts[i], level = even, max(level, even)
		}
		left -= parts[i]
	}
	return parts, level
}

// shareBar is the least part of its max-min share that each tenant shall have.
const shareBar = 0.95

// fairness says what each tenant had of a back end in a window of time, beside its max-min
// share of it: of equal tenants, in service time.
type fairness struct {
	tenants []tenantShare // those that called, by how well each was served, the worst first
	demand  time.Duration // of all
	served  time.Duration // of all
	room    time.Duration // what the back end can do in the window
	level   time.Duration // the share of a tenant that wants more than it, 0 = there is none
	waits   latency       // of the calls of tenants that want no more than their share
	waiting int           // the most that waited at one moment
	left    int           // calls that waited still at the end
}

// tenantShare is one tenant's part.
type tenantShare struct {
	demand, share, served time.Duration
}

func (s tenantShare) ratio() float64 { return float64(s.served) / float64(s.share) }

// measure says how fair it was that the calls of a window of this length started when they
// did, on so many slots.
//
// Demand and service are counted up to the end of the window, for all alike: a call that
// comes a moment before it can have no more than that moment. So who never waits has all
// of its demand, and all together have no more than the slots can do.
func measure(calls []call, starts []time.Duration, slots int, length time.Duration) *fairness {
	f := &fairness{room: time.Duration(slots) * length}
	number := make(map[string]int)
	var demand, served []time.Duration
	for i, k := range calls {
		n, known := number[k.key]
		if !known {
			n = len(number)
			number[k.key] = n
			demand, served = append(demand, 0), append(served, 0)
		}
		demand[n] += min(k.hold, length-k.at)
		if starts[i] == notStarted {
			f.left++
			continue
		}
		served[n] += min(k.hold, length-starts[i])
	}
	shares, level := maxMin(demand, f.room)
	f.level = level
	for n := range demand {
		f.demand += demand[n]
		f.served += served[n]
		f.tenants = append(f.tenants, tenantShare{demand[n], shares[n], served[n]})
	}
	var waits []time.Duration
	for i, k := range calls {
		if n := number[k.key]; shares[n] == demand[n] {
			end := starts[i]
			if end == notStarted {
				end = length
			}
			waits = append(waits, end-k.at)
		}
	}
	slices.Sort(waits)
	f.waits = spread(waits)
	slices.SortStableFunc(f.tenants, func(a, b tenantShare) int { return cmp.Compare(a.ratio(), b.ratio()) })
	return f
}

// worst and median are of the tenants' parts of their shares, 0 where nobody called.
func (f *fairness) worst() float64 { return f.at(0) }

func (f *fairness) median() float64 { return f.at(len(f.tenants) / 2) }

func (f *fairness) at(n int) float64 {
	if len(f.tenants) == 0 {
		return 0
	}
	return f.tenants[n].ratio()
}

// below counts the tenants below the bar.
func (f *fairness) below() int {
	n := 0
	for _, t := range f.tenants {
		if t.ratio() < shareBar {
			n++
		}
	}
	return n
}

// largest is the part of its share of the tenant with the largest demand.
func (f *fairness) largest() float64 {
	if len(f.tenants) == 0 {
		return 0
	}
	return slices.MaxFunc(f.tenants, func(a, b tenantShare) int { return cmp.Compare(a.demand, b.demand) }).ratio()
}

// ranks are the parts of the shares in percent, by the percent of tenants that have no more.
func (f *fairness) ranks() []point {
	if f == nil {
		return nil
	}
	var all []point
	for i, t := range f.tenants {
		all = append(all, point{100 * float64(i+1) / float64(len(f.tenants)), 100 * t.ratio()})
	}
	return all
}
