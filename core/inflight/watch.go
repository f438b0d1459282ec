package inflight

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// Demand is what a lane asks for at one moment.
type Demand struct {
	Lane    string     // its key
	Held    int        // slots that are held
	Waiting int        // callers that wait
	Class   gate.Class // the highest class that waits; 0 when nobody does
}

// watch tells watchers which lanes have changed. It has a goroutine while there
// are any.
type watch struct {
	on atomic.Bool // there are watchers

	mu      sync.Mutex
	changes *sync.Cond // something below has changed
	fns     map[int]func(Demand)
	next    int // the next key of fns
	calling int // the key of the function that is being called, -1 = none
	dirty   []*lane
	closed  bool
	running bool
}

// Watch calls fn soon after what a lane asks for has changed, with what it asks for
// then, until stop is called or the limiter is closed; first for every lane that
// there is. Many changes may be told as one; the last one is always told. fn is
// called from one goroutine and under no lock: it may call the limiter, but neither
// stop nor Close. It must not panic: nobody recovers it. If it exits its goroutine, it
// is as if stop had been called. After stop or Close has returned fn is not called any
// more. Calling stop again does nothing. On a closed limiter Watch does nothing.
func (l *Limiter) Watch(fn func(Demand)) (stop func()) {
	stop = l.watch.add(fn)
	l.mu.Lock() // after that: a lane that is not there yet is told of by who makes it
	all := l.allLocked()
	l.mu.Unlock()
	for _, ln := range all {
		l.watch.changed(ln)
	}
	return stop
}

func (w *watch) add(fn func(Demand)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return func() {}
	}
	if w.fns == nil {
		w.fns, w.calling = make(map[int]func(Demand)), -1
		w.changes = sync.NewCond(&w.mu)
	}
	id := w.next
	w.next++
	w.fns[id] = fn
	w.on.Store(true)
	if !w.running {
		w.running = true
		go w.run()
	}
	return func() { w.remove(id) }
}

// changed notes that a lane asks for something else now. When the note is there
// already it is one load.
func (w *watch) changed(ln *lane) {
	if ln.dirty.Load() || ln.dirty.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		ln.dirty.Store(false)
		return
	}
	w.dirty = append(w.dirty, ln)
	w.changes.Broadcast()
}

func (w *watch) run() {
	over := false
	defer func() {
		if !over { // a watcher has exited the goroutine: the others want another one
			go w.run()
		}
	}()
	for lanes := range w.rounds {
		w.tell(lanes)
	}
	over = true
}

// tell tells the watchers of lanes. Those for which it does not come to that it puts
// back.
func (w *watch) tell(lanes []*lane) {
	told := 0
	defer func() {
		for _, ln := range lanes[told:] {
			ln.dirty.Store(false)
			w.changed(ln)
		}
	}()
	for ; told < len(lanes); told++ {
		ln := lanes[told]
		ln.dirty.Store(false) // what changes from here on is told again
		d := ln.demand()
		for _, id := range w.ids() {
			w.call(id, d)
		}
	}
}

// rounds yields the lanes that have changed, until nobody watches.
func (w *watch) rounds(yield func([]*lane) bool) {
	for {
		w.mu.Lock()
		for len(w.dirty) == 0 && len(w.fns) > 0 {
			w.changes.Wait()
		}
		lanes := w.dirty
		w.dirty = nil
		if len(w.fns) == 0 {
			for _, ln := range lanes {
				ln.dirty.Store(false)
			}
			w.on.Store(false)
			w.running = false
			w.changes.Broadcast()
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		yield(lanes)
	}
}

func (w *watch) ids() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.fns))
}

// call calls one watcher, if it is still there, outside the lock.
func (w *watch) call(id int, d Demand) {
	w.mu.Lock()
	fn := w.fns[id]
	if fn != nil {
		w.calling = id
	}
	w.mu.Unlock()
	if fn == nil {
		return
	}
	returned := false
	defer func() {
		w.mu.Lock()
		w.calling = -1
		if !returned {
			delete(w.fns, id)
		}
		w.changes.Broadcast()
		w.mu.Unlock()
	}()
	fn(d)
	returned = true
}

func (w *watch) remove(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fns, id)
	w.changes.Broadcast()
	for w.calling == id {
		w.changes.Wait()
	}
}

// close ends the goroutine and waits for it.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	clear(w.fns)
	for w.running {
		w.changes.Broadcast()
		w.changes.Wait()
	}
}

// demand is what the lane asks for now.
func (ln *lane) demand() Demand {
	s := ln.q.Snapshot()
	d := Demand{Lane: ln.key, Held: int(s.InUse), Waiting: waiting(s)}
	for c := waitq.Classes - 1; c >= 0; c-- {
		if s.Waiting[c] > 0 {
			d.Class = classOf(c)
		}
	}
	return d
}
