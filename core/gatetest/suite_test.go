package gatetest

import (
	"reflect"
	"sync"
	"testing"
	"time"
)

// A sound adapter passes.
func TestSoundAdapterPasses(t *testing.T) {
	Run(t, sample{}.adapter())
}

// An adapter that cannot do much passes when it says so.
func TestDeclaredDeviationsPass(t *testing.T) {
	Run(t, sample{poor: true}.adapter())
}

// An adapter whose server reads the beginning of bodies first passes when it says so.
func TestDeclaredPrefetchPasses(t *testing.T) {
	Run(t, sample{peek: true}.adapter())
}

// Where requests come late to the gate and the suite late to what it waits for, all
// cases pass: none of them takes a slow machine for a wrong adapter.
func TestSlowMachinePasses(t *testing.T) {
	const late = 400 * time.Millisecond
	for _, poor := range []bool{false, true} {
		s := newSuite(sample{poor: poor, late: late}.adapter(), patience)
		s.tick, s.together = late, true
		var all sync.WaitGroup
		turns := make(chan struct{}, 24) // most of the time is spent asleep
		for _, c := range s.cases() {
			for _, p := range c.protocols {
				turns <- struct{}{}
				all.Go(func() {
					defer func() { <-turns }()
					if r := s.best(c, p); r.Failed() {
						t.Errorf("poor %v: %s over %s: %s", poor, c.name, p, r.text())
					}
				})
			}
		}
		all.Wait()
	}
}

// best performs a scene as often as run does, and returns what it had to say at last.
func (s *suite) best(c scene, p protocol) *recorder {
	r := s.judge(c, p, paces[0])
	for _, pace := range paces[1:] {
		if c.timed && r.Failed() {
			r = s.judge(c, p, pace)
		}
	}
	return r
}

// adapter declares all deviations, or none.
func (a sample) adapter() Adapter {
	all := Adapter{Start: a.start, ItemRoute: "unmatched"}
	for v, i := reflect.ValueOf(&all.Deviations).Elem(), 0; i < v.NumField(); i++ {
		v.Field(i).SetBool(a.poor)
	}
	all.Deviations.Prefetches = a.poor || a.peek
	return all
}
