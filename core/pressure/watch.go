package pressure

import (
	"maps"
	"slices"
	"sync"
)

// watch tells watchers of changes.
type watch struct {
	mu      sync.Mutex
	idle    *sync.Cond // nobody is being called
	all     map[int]*watcher
	next    int // the next key of all
	calling int // the key of the watcher that is being called, -1 = none
	closed  bool
}

// watcher is one function and what it was told last.
type watcher struct {
	fn       func(Severity, Ceiling)
	told     bool
	severity Severity
	ceiling  Ceiling
}

func (w *watch) init() {
	w.idle, w.all, w.calling = sync.NewCond(&w.mu), make(map[int]*watcher), -1
}

// add is false after close, and for nil.
func (w *watch) add(fn func(Severity, Ceiling)) (id int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || fn == nil {
		return 0, false
	}
	w.next++
	w.all[w.next] = &watcher{fn: fn}
	return w.next, true
}

// remove waits until the watcher is not being called.
func (w *watch) remove(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, id)
	for w.calling == id {
		w.idle.Wait()
	}
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	clear(w.all)
}

// tell calls everyone who does not know the state yet, one after the other.
func (w *watch) tell(s Severity, c Ceiling) {
	for _, id := range w.ids() {
		w.call(id, s, c)
	}
}

func (w *watch) ids() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.all))
}

// call calls one watcher, if it is still there and does not know the state, outside of
// the lock.
func (w *watch) call(id int, s Severity, c Ceiling) {
	if fn := w.begin(id, s, c); fn != nil {
		returned := false
		defer func() { w.end(id, returned) }()
		fn(s, c)
		returned = true
	}
}

func (w *watch) begin(id int, s Severity, c Ceiling) func(Severity, Ceiling) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[id]
	if one == nil || one.told && one.severity == s && one.ceiling == c {
		return nil
	}
	one.told, one.severity, one.ceiling = true, s, c
	w.calling = id
	return one.fn
}

func (w *watch) end(id int, returned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !returned {
		delete(w.all, id) // it has exited the goroutine
	}
	w.calling = -1
	w.idle.Broadcast()
}
