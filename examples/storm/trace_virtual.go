package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
)

// notStarted is the start of a call whose turn has not come.
const notStarted = time.Duration(-1)

// virtual plays calls through a gate to a back end in virtual time: what happens next is
// what is due next, and no time passes until then. The gate is the real one. It learns
// of an arrival by an Acquire and of an end by a Release, in the order of virtual time and
// one after another, and each call that waits is a goroutine that waits in it. So the
// gate's order is its own, and the same calls give the same starts, on any machine.
//
// The gate's own clock goes on as it does. Nothing of a gate with a fixed limit, one
// class and a wait long enough goes by it.
//
// The back end has slots that serve one call each, and serves first come first served what
// it is given beyond them.
type virtual struct {
	gate  *lanes.Controller
	limit int // calls that the gate lets in at once, each at cost 1; 0 = it lets in all
	slots int
	calls []call

	starts  []time.Duration // of service; notStarted
	leases  []gate.Lease
	refused map[int]gate.Reason // by call
	asking  sync.WaitGroup      // of the calls that ask the gate
	answers chan answer
	held    int // calls that the gate has let in and that are not over
	waiting int // calls that wait in the gate
	busy    int // slots that serve
	line    []int
	ends    dueTimes
	seen    samples
	most    int // calls that waited at one moment, in the gate and in the back end
	inside  int // the most calls at the back end at one moment
}

// answer is what the gate says to a call.
type answer struct {
	call  int
	lease gate.Lease
	err   error
}

// asker is the context of a call. The gate looks at Done of one who has to wait when that
// one stands in its queue, and so says that it does.
type asker struct {
	context.Context
	waits chan struct{} // with room for one
}

func (a asker) Done() <-chan struct{} {
	select {
	case a.waits <- struct{}{}:
	default:
	}
	return nil
}

// answerTime bounds how long the gate may take to say what becomes of a call. It is real
// time, a guard against waiting for ever.
const answerTime = time.Minute

var errSilent = errors.New("the gate has left a call without an answer, although there is room")

// play plays all calls, which must be in the order of their times, up to length. An error
// means that the gate does not do as gates do, or is ctx's. tell hears now and then how
// many have come and how many have started. The gate is closed afterwards.
func (v *virtual) play(ctx context.Context, length time.Duration, tell func(sent, started int)) error {
	v.starts, v.leases = make([]time.Duration, len(v.calls)), make([]gate.Lease, len(v.calls))
	for i := range v.starts {
		v.starts[i] = notStarted
	}
	v.answers, v.refused = make(chan answer), make(map[int]gate.Reason)
	next, started, err := 0, 0, error(nil)
	for second := time.Duration(0); second < length && err == nil; second += time.Second {
		v.look(second)
		for err == nil {
			at, ends := v.due(next)
			if at >= min(second+time.Second, length) {
				break
			}
			if ends {
				err = v.end(at)
				started++
				continue
			}
			err = v.arrive(next)
			next++
		}
		tell(next, started+v.busy)
		if err == nil {
			err = ctx.Err()
		}
	}
	v.look(length)
	return errors.Join(err, v.close())
}

// due is when the next thing happens, and whether that is the end of a service. Ends come
// before arrivals of the same time.
func (v *virtual) due(next int) (at time.Duration, ends bool) {
	at = 1 << 62
	if next < len(v.calls) {
		at = v.calls[next].at
	}
	if len(v.ends) > 0 && v.ends[0].at <= at {
		return v.ends[0].at, true
	}
	return at, false
}

// arrive asks the gate for a call, and returns when it is let in, is refused, or waits.
func (v *virtual) arrive(i int) error {
	a := asker{context.Background(), make(chan struct{}, 1)}
	v.asking.Go(func() {
		lease, err := v.gate.Acquire(a, gate.Request{Flow: v.calls[i].key, Cost: 1})
		v.answers <- answer{i, lease, err}
	})
	waits := a.waits
	if v.limit == 0 || v.held < v.limit {
		waits = nil // it has to be let in
	}
	guard := time.NewTimer(answerTime)
	defer guard.Stop()
	for {
		select {
		case got := <-v.answers:
			if got.call != i { // it makes way
				v.waiting--
			}
			if err := v.answered(got, v.calls[i].at); err != nil || got.call == i {
				return err
			}
		case <-waits:
			v.waiting++
			v.most = max(v.most, v.waiting)
			return nil
		case <-guard.C:
			return errSilent
		}
	}
}

// answered takes an answer that comes at a time.
func (v *virtual) answered(got answer, at time.Duration) error {
	if r := (*gate.Rejection)(nil); errors.As(got.err, &r) {
		v.refused[got.call] = r.Reason
		return nil
	}
	if got.err != nil {
		return got.err
	}
	v.held++
	v.leases[got.call] = got.lease
	v.inside = max(v.inside, v.held)
	if v.busy == v.slots {
		v.line = append(v.line, got.call)
		v.most = max(v.most, v.waiting+len(v.line))
		return nil
	}
	v.start(got.call, at)
	return nil
}

// start begins the service of a call.
func (v *virtual) start(i int, at time.Duration) {
	v.busy++
	v.starts[i] = at
	heap.Push(&v.ends, due{at + v.calls[i].hold, i})
}

// end ends the service that is over first, and gives its lease back. Who waits in the
// gate has the room then, and who waits in the back end the slot.
func (v *virtual) end(at time.Duration) error {
	i := heap.Pop(&v.ends).(due).call
	v.busy--
	v.held--
	v.leases[i].Release()
	v.leases[i] = gate.Lease{}
	if len(v.line) > 0 {
		next := v.line[0]
		v.line = v.line[1:]
		v.start(next, at)
	}
	for before := v.held; v.waiting > 0 && v.held == before; {
		guard := time.NewTimer(answerTime)
		select {
		case got := <-v.answers:
			guard.Stop()
			v.waiting--
			if err := v.answered(got, at); err != nil {
				return err
			}
		case <-guard.C:
			return errSilent
		}
	}
	return nil
}

// look notes how many wait and are at the back end.
func (v *virtual) look(at time.Duration) {
	v.seen.waiting = append(v.seen.waiting, point{at.Seconds(), float64(v.waiting)})
	v.seen.atBack = append(v.seen.atBack, point{at.Seconds(), float64(v.held)})
}

// close sends all home. The error says what the gate has lost.
func (v *virtual) close() error {
	s := v.gate.Snapshot()
	v.gate.Close()
	go func() {
		v.asking.Wait()
		close(v.answers)
	}()
	home, left := 0, 0
	for got := range v.answers {
		got.lease.Release()
		left++
		if errors.Is(got.err, gate.ShuttingDown) {
			home++
		} else if r := (*gate.Rejection)(nil); errors.As(got.err, &r) {
			v.refused[got.call] = r.Reason // it has made way before, and nobody has looked
		}
	}
	for _, l := range v.leases {
		l.Release()
	}
	var err error
	if v.limit > 0 && (s.Inflight != int64(v.held) || s.QueuedCount != home || v.waiting != left) {
		err = fmt.Errorf("the gate says that %d are in flight and %d wait, which are %d and %d, and %d have not got their answer, which should be %d",
			s.Inflight, s.QueuedCount, v.held, home, left, v.waiting)
	}
	if s := v.gate.Snapshot(); s.Inflight != 0 || s.QueuedCount != 0 {
		err = errors.Join(err, fmt.Errorf("after all, the gate says that %d are in flight and %d wait", s.Inflight, s.QueuedCount))
	}
	return err
}

// outcomes says what became of each call: answered is one whose turn came, to its end
// even where that is after the window, and lost is one that waits still.
func (v *virtual) outcomes() []outcome {
	all := make([]outcome, len(v.calls))
	for i, k := range v.calls {
		all[i] = outcome{at: k.at, kind: k.kind, verdict: answered, took: v.starts[i] + k.hold - k.at}
		if v.starts[i] == notStarted {
			all[i].verdict, all[i].why, all[i].took = lost, "waiting at the end", 0
		}
		if why, ok := v.refused[i]; ok {
			all[i].verdict, all[i].why = refused, string(why)
		}
	}
	return all
}

// dueTimes is a heap of ends of services.
type dueTimes []due

type due struct {
	at   time.Duration
	call int
}

func (d dueTimes) Len() int { return len(d) }

// Less: of equal times the call that came first goes first.
func (d dueTimes) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].call < d[j].call
}
func (d dueTimes) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dueTimes) Push(x any)   { *d = append(*d, x.(due)) }
func (d *dueTimes) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
