package shedlog

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// Each reason is counted in its place, callers that leave apart, strange reasons nowhere.
func TestCounts(t *testing.T) {
	c := Counts{[]gate.Reason{gate.QueueFull, gate.QueueTimeout, gate.Displaced, gate.Canceled}, make([]atomic.Int64, 4)}
	for _, r := range []gate.Reason{gate.Displaced, gate.QueueFull, gate.Displaced, gate.Canceled, gate.SlowBody} {
		c.Add(r)
	}
	by, sum, canceled := c.Read()
	want := map[gate.Reason]int64{gate.QueueFull: 1, gate.Displaced: 2}
	if !reflect.DeepEqual(by, want) || sum != 3 || canceled != 1 {
		t.Errorf("%v, %d in all, %d left", by, sum, canceled)
	}
}
