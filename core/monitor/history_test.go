package monitor

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// forget lets d pass, and the samples of that time be taken.
func forget(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestHistoryIsARing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, openGates(t, gatesConfig()), func(c *Config) { c.Period, c.History = step, 10*step })
		for i := range 25 {
			past := read[historyOf](t, h, "/history")
			if want := min(i+1, 10); len(past.AgeS) != want || len(past.Admission.Inflight) != want || len(past.Pressure.Severity) != want ||
				len(past.Lanes.Limit) != want || len(past.Inflight.Queued) != want || len(past.Inflight.Would) != want {
				t.Fatalf("after %d samples: %+v", i+1, past)
			}
			for j, age := range past.AgeS {
				if want := float64(3 * (len(past.AgeS) - 1 - j)); age != want {
					t.Fatalf("ages %v: the oldest comes first, 3 s apart", past.AgeS)
				}
			}
			forget(step)
		}
		h.Close()
		forget(5 * step)
		if past := read[historyOf](t, h, "/history"); slices.Min(past.AgeS) != 15 {
			t.Errorf("ages %v: nothing is sampled after Close", past.AgeS)
		}
	})
}

// A machine that slept takes no samples; those from before may be too old by then.
func TestOldSamplesAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		c := Config{Period: step, History: 10 * step}
		r.init(&headgate.Headgate{}, c)
		for range 5 {
			time.Sleep(step)
			r.record()
		}
		time.Sleep(8 * step)
		r.record()
		if got, want := r.report(c).AgeS, []float64{30, 27, 24, 0}; !slices.Equal(got, want) {
			t.Errorf("ages %v, want %v", got, want)
		}
	})
}

func TestHistorySaysWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hg := openGates(t, gatesConfig())
		refused(t, hg.Bytes, gate.Request{Bytes: 100 * mib}) // before New
		h := open(t, hg, nil)

		bytes := hold(t, hg.Bytes, gate.Request{Bytes: 5 * mib})
		hold(t, hg.Tenants, gate.Request{Cost: 7})
		hold(t, hg.Outbound, gate.Request{Lane: "llm"})
		refused(t, hg.Bytes, gate.Request{Bytes: 100 * mib})
		refused(t, hg.Bytes, gate.Request{Bytes: 4 * mib})
		refused(t, hg.Tenants, gate.Request{Cost: 5000})
		forget(step)
		bytes.Release()
		refused(t, hg.Bytes, gate.Request{Bytes: 100 * mib})
		forget(step)
		config := gatesConfig()
		config.Admission.MaxInflightBytes = 16 * mib
		if err := hg.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
		forget(step)

		past := read[historyOf](t, h, "/history")
		for _, c := range []struct {
			what      string
			got, want any
		}{
			{"bytes", past.Admission.Inflight, []int64{0, 5 * mib, 0, 0}},
			{"budget", past.Admission.Max, []int64{8 * mib, 8 * mib, 8 * mib, 16 * mib}},
			{"bytes' refusals", past.Admission.Sheds, map[string][]int{"payload_too_large": {0, 1, 1, 0}, "queue_timeout": {0, 1, 0, 0}}},
			{"cost", past.Lanes.Cost, []int64{0, 7, 7, 7}},
			{"limit", past.Lanes.Limit, []int64{10, 10, 10, 10}},
			{"tenants' refusals", past.Lanes.Sheds, map[string][]int{"cost_exceeds_limit": {0, 1, 0, 0}}},
			{"calls", past.Inflight.Inflight, []int64{0, 1, 1, 1}},
			{"calls' refusals", past.Inflight.Sheds, map[string][]int{}},
			{"severity", past.Pressure.Severity, []int{0, 0, 0, 0}},
		} {
			if !reflect.DeepEqual(c.got, c.want) {
				t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
			}
		}
	})
}

// In shadow mode nothing is refused; what would be is counted apart.
func TestHistoryOfShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gatesConfig()
		c.Inflight.Mode, c.Inflight.MaxInflight, c.Inflight.MaxQueue = gate.Shadow, 1, 0
		hg := openGates(t, c)
		h := open(t, hg, nil)
		for range 4 {
			hold(t, hg.Outbound, gate.Request{Lane: "llm"})
		}
		forget(step)
		past := read[historyOf](t, h, "/history")
		if len(past.Inflight.Sheds) != 0 || !slices.Equal(past.Inflight.Would, []int{0, 3}) {
			t.Errorf("sheds %v, would refuse %v", past.Inflight.Sheds, past.Inflight.Would)
		}
	})
}

// An evicted lane takes its counters with it, and begins anew when it comes back: the
// history loses nothing that it has seen, and shows nothing twice.
func TestHistoryOverEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gatesConfig()
		c.Inflight.MaxLanes, c.Inflight.MaxInflight, c.Inflight.MaxQueue = 1, 1, 0
		hg := openGates(t, c)
		h := open(t, hg, nil)
		for _, round := range []struct {
			lane string
			n    int
		}{{"a", 3}, {"b", 1}, {"a", 5}, {"a", 2}, {"b", 0}, {"a", 1}} {
			held := hold(t, hg.Outbound, gate.Request{Lane: round.lane})
			for range round.n {
				refused(t, hg.Outbound, gate.Request{Lane: round.lane})
			}
			held.Release()
			forget(step)
		}
		if got, want := read[historyOf](t, h, "/history").Inflight.Sheds, []int{0, 3, 1, 5, 2, 0, 1}; !reflect.DeepEqual(got, map[string][]int{"queue_full": want}) {
			t.Errorf("%v, want queue_full %v", got, want)
		}
	})
}

// What a lane has refused is in the history although the lane came and went between two
// samples, or came back and has refused more than before.
func TestHistoryOfShortLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gatesConfig()
		c.Inflight.MaxLanes, c.Inflight.MaxInflight, c.Inflight.MaxQueue = 1, 1, 0
		hg := openGates(t, c)
		h := open(t, hg, nil)
		for _, sheds := range []map[string]int{{"a": 3}, {"b": 4, "c": 2}, {"c": 1, "a": 5}} {
			for _, lane := range []string{"b", "c", "a"} {
				if sheds[lane] == 0 {
					continue
				}
				held := hold(t, hg.Outbound, gate.Request{Lane: lane})
				for range sheds[lane] {
					refused(t, hg.Outbound, gate.Request{Lane: lane})
				}
				held.Release()
			}
			forget(step)
		}
		if got, want := read[historyOf](t, h, "/history").Inflight.Sheds, []int{0, 3, 6, 6}; !reflect.DeepEqual(got, map[string][]int{"queue_full": want}) {
			t.Errorf("%v, want queue_full %v", got, want)
		}
	})
}

// Reloads change limits and modes, and no count is lost, doubled or negative for that.
func TestHistoryOverReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gatesConfig()
		c.Inflight.MaxQueue = 0
		hg := openGates(t, c)
		h := open(t, hg, nil)
		rng := rand.New(rand.NewPCG(3, 4))
		made := map[string]int{}
		for range 100 {
			for range rng.IntN(4) {
				refused(t, hg.Bytes, gate.Request{Bytes: 1 << 40})
				refused(t, hg.Tenants, gate.Request{Cost: 5000})
				made["payload_too_large"]++
				made["cost_exceeds_limit"]++
			}
			if c.Inflight.MaxInflight == 1 { // a slot that is held leaves none
				held := hold(t, hg.Outbound, gate.Request{Lane: "llm"})
				refused(t, hg.Outbound, gate.Request{Lane: "llm"})
				held.Release()
				made["queue_full"]++
			}
			c.Inflight.MaxInflight = rng.IntN(3)
			c.Admission.MaxInflightBytes = gate.Size(8+rng.IntN(8)) * mib
			c.Lanes.VirtualLanes = rng.IntN(2) == 0
			if err := hg.Reconfigure(c); err != nil {
				t.Fatal(err)
			}
			forget(step)
		}
		past := read[historyOf](t, h, "/history")
		for reason, sheds := range map[string][]int{
			"payload_too_large":  past.Admission.Sheds["payload_too_large"],
			"cost_exceeds_limit": past.Lanes.Sheds["cost_exceeds_limit"],
			"queue_full":         past.Inflight.Sheds["queue_full"],
		} {
			if total(sheds) != made[reason] || len(sheds) > 0 && slices.Min(sheds) < 0 || made[reason] == 0 {
				t.Errorf("%s: %d in the history, %d made: %v", reason, total(sheds), made[reason], sheds)
			}
		}
	})
}

// Against a model: whatever counters do, no sample is negative, and where none goes back
// the samples add up.
func TestGrown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var sum, seen, counter int64
		for range 20 {
			before := counter
			if rng.IntN(5) == 0 {
				counter = 0 // the lane was made anew
			}
			n := int64(rng.IntN(100))
			counter += n
			switch got := int64(grown(before, counter)); {
			case counter >= before && before+got != counter:
				t.Fatalf("grown(%d, %d) = %d", before, counter, got)
			case counter < before && got != n:
				t.Fatalf("grown(%d, %d) = %d, want %d since it began again", before, counter, got, n)
			default:
				sum += got
			}
			seen += n
		}
		if sum > seen {
			t.Fatalf("%d counted of %d", sum, seen)
		}
	}
	if grown(0, math.MaxInt64) != math.MaxUint32 || grown(5, -3) != 0 {
		t.Error("counters beyond all bounds")
	}
}

func TestUnknownReasonsAreOther(t *testing.T) {
	got := countsOf(map[gate.Reason]int64{"new": 2, "newer": 3, gate.Deadline: 1}, 0)
	if got.sheds[len(reasons)-1] != 5 || got.sheds[placeOf(gate.Deadline)] != 1 {
		t.Errorf("%v", got)
	}
}

// Whoever reads sees what there was when the reading began.
func TestReadersHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hg := openGates(t, gatesConfig())
		h := open(t, hg, func(c *Config) { c.Period, c.History = step, 5*step })
		forget(7 * step)
		v := h.recorder.view.Load()
		before, err := json.Marshal(v.lanes(v.samples))
		if err != nil {
			t.Fatal(err)
		}
		copies := make([]sample, len(v.samples))
		for i, s := range v.samples {
			copies[i] = *s
		}
		hold(t, hg.Outbound, gate.Request{Lane: "new"})
		forget(20 * step) // nobody waits for v
		after, err := json.Marshal(v.lanes(v.samples))
		if err != nil || string(before) != string(after) {
			t.Errorf("%s became %s, %v", before, after, err)
		}
		for i, s := range v.samples {
			if *s != copies[i] {
				t.Errorf("sample %d has changed", i)
			}
		}
		if now := h.recorder.view.Load(); now == v || now.samples[len(now.samples)-1].calls != 1 {
			t.Error("nothing was sampled while somebody read")
		}
	})
}

func TestLanesOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hg := openGates(t, gatesConfig())
		h := open(t, hg, nil)
		first := hold(t, hg.Outbound, gate.Request{Lane: "<b>hostile</b>", Class: gate.Interactive})
		forget(step)
		hold(t, hg.Outbound, gate.Request{Lane: "<b>hostile</b>", Class: gate.Interactive})
		forget(step)
		first.Release()
		forget(step)
		lanes := read[historyOf](t, h, "/history").Inflight.Lanes
		if len(lanes) != 1 || lanes[0].Lane != "<b>hostile</b>" || !slices.Equal(lanes[0].Inflight, []int64{0, 1, 2, 1}) || !slices.Equal(lanes[0].Limit, []int64{0, 2, 2, 2}) {
			t.Errorf("%+v", lanes)
		}
	})
}

// loads returns a snapshot's lanes: name, in flight, waiting.
func loads(of map[string]int) (out []inflight.LaneSnapshot) {
	for name, n := range of {
		out = append(out, inflight.LaneSnapshot{Lane: name, Limit: 9, Inflight: min(n, 9), Queued: max(0, n-9)})
	}
	return out
}

func (t *tracking) has(lane string) bool {
	return slices.ContainsFunc(t.names[:], func(n name) bool { return n.lane == lane })
}

func TestBusiestLanesAreTracked(t *testing.T) {
	var tr tracking
	tr.update(loads(map[string]int{"idle": 0}))
	if tr.has("idle") {
		t.Error("a place for a lane in which nothing happens")
	}
	crowd := map[string]int{}
	for i := range 500 {
		crowd[fmt.Sprint("lane", i)] = i
	}
	tr.update(loads(crowd))
	for i := range 500 {
		if lane := fmt.Sprint("lane", i); tr.has(lane) != (i >= 500-tracked) {
			t.Errorf("%s: tracked %v", lane, tr.has(lane))
		}
	}
	// About as busy as one that is tracked: its past is not given up for that.
	crowd["new"] = 600
	tr.update(loads(crowd))
	if tr.has("new") {
		t.Error("a lane was pushed out by one of its size")
	}
	crowd["new"] = 1000
	cells := tr.update(loads(crowd))
	if !tr.has("new") || tr.has("lane480") {
		t.Error("twice as busy as the least, and no place")
	}
	at := slices.IndexFunc(tr.names[:], func(n name) bool { return n.lane == "new" })
	if c := cells[at]; c.id != tr.names[at].id || c.inflight != 9 || c.queued != 991 {
		t.Errorf("its cell is %+v", c)
	}
	// Idle and gone lanes make way at once, and only as many as are needed.
	tr.update(loads(map[string]int{"lane499": 0, "fresh": 1}))
	if !tr.has("fresh") {
		t.Error("no place beside idle lanes")
	}
	if n := len(slices.DeleteFunc(slices.Clone(tr.names[:]), func(n name) bool { return !strings.HasPrefix(n.lane, "lane") })); n < tracked-2 {
		t.Errorf("%d of %d lanes are left for one newcomer", n, tracked)
	}
	for range 100 {
		tr.update(loads(map[string]int{"idle" + fmt.Sprint(rand.Int()): 0}))
	}
	if !tr.has("fresh") {
		t.Error("an idle newcomer took a place")
	}
}

// A lane that took a place shows nothing of who had it before.
func TestPlacesAreNotInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		c := Config{Period: step, History: 10 * step}
		r.init(&headgate.Headgate{}, c)
		take := func(of map[string]int) {
			s := &sample{at: time.Since(r.epoch)}
			r.recordLanes(s, loads(of))
			r.publish(s)
			time.Sleep(step)
		}
		crowd := map[string]int{}
		for i := range tracked {
			crowd[fmt.Sprint("lane", i)] = 3
		}
		take(crowd)
		crowd["big"] = 20
		take(crowd)
		v := r.view.Load()
		for _, l := range v.lanes(v.samples) {
			if l.Lane == "big" && (!slices.Equal(l.Queued, []int32{0, 0, 11}) || !slices.Equal(l.Inflight, []int32{0, 0, 9}) || !slices.Equal(l.Limit, []int32{0, 0, 9})) {
				t.Errorf("%+v", l)
			}
		}
	})
}

// What the package comment says of memory.
func TestSampleSize(t *testing.T) {
	if n := reflect.TypeFor[sample]().Size(); n > 640 {
		t.Errorf("a sample has %d bytes", n)
	}
	if n := reflect.TypeFor[counts]().Size(); n > 160 {
		t.Errorf("a lane's counters have %d bytes", n)
	}
}
