package shedlog

import (
	"slices"
	"sync/atomic"

	"github.com/headgate-go/headgate/core/gate"
)

// Counts has the number of refusals by reason. Reasons are those that the gate refuses
// for, and Numbers as many places: a gate with many lanes has both once and once for
// each lane. It is made where it is used, and holds nothing itself.
type Counts struct {
	Reasons []gate.Reason
	Numbers []atomic.Int64
}

// Add counts a refusal. One for any other reason is not counted.
func (c Counts) Add(r gate.Reason) {
	if i := slices.Index(c.Reasons, r); i >= 0 {
		c.Numbers[i].Add(1)
	}
}

// Read returns the refusals by reason, without reasons that there were none for, their
// sum, and how many callers have left: those are no refusals.
func (c Counts) Read() (by map[gate.Reason]int64, sum, canceled int64) {
	by = make(map[gate.Reason]int64)
	for i, r := range c.Reasons {
		switch n := c.Numbers[i].Load(); {
		case r == gate.Canceled:
			canceled = n
		case n > 0:
			by[r] = n
			sum += n
		}
	}
	return by, sum, canceled
}
