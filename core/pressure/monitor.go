package pressure

import (
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Monitor watches how close the process is to its memory limit. Use New. All methods
// are safe for concurrent use.
type Monitor struct {
	severity atomic.Uint32
	state    atomic.Pointer[state]
	config   atomic.Pointer[Config]
	watch    watch

	kick      chan struct{} // the configuration or the watchers have changed
	stop      chan struct{}
	stopped   chan struct{} // the sampler has ended
	closeOnce sync.Once

	collector  collector
	collected  chan float64 // what a forced collection has freed; has room for it
	collecting sync.WaitGroup

	// From here on all is the sampler's.
	sampler sampler
	applied *Config // what the last sample went by
	judge   judge
	pace    pace
	since   time.Time // when the severity changed
	samples int64
	logged  [signals]bool // unavailable signals that have had their line
}

// state is what is known after a sample. It is never changed.
type state struct {
	sample
	config      *Config
	severity    Severity
	cause       signal
	since       time.Time
	samples     int64
	collections int64
	running     bool
	freed       float64
}

// outside is what a monitor asks about the world, apart from files.
type outside struct {
	physical func(fs.FS) (int64, error)
	runtime  func() func() goStats // makes a reader for one goroutine
	collect  func()
}

func theOutside(c Config) outside {
	o := outside{
		physical: memTotal,
		runtime: func() func() goStats {
			r := new(reader)
			return r.read
		},
		collect: debug.FreeOSMemory,
	}
	if c.Root == nil {
		o.physical = machineMemory
	}
	return o
}

// New takes a first sample and returns a monitor that takes one every Period. The error
// names the field of c that is wrong; nothing was started then. What cannot be read
// is no error: see [Snapshot]. New starts one goroutine, which Close ends.
func New(c Config) (*Monitor, error) { return open(c, theOutside(c)) }

func open(c Config, o outside) (*Monitor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Monitor{
		kick: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
		collector: collector{o.collect, o.runtime()}, collected: make(chan float64, 1),
		sampler: sampler{physical: o.physical, runtime: o.runtime()},
		since:   time.Now(),
	}
	m.watch.init()
	m.config.Store(&c)
	m.sample()
	go m.run()
	return m, nil
}

// Severity returns how close the process is to its limit, as of the last sample. It is
// one atomic load. A closed monitor is Normal.
func (m *Monitor) Severity() Severity { return Severity(m.severity.Load()) }

// Ceiling returns the memory that this process may use, as of the last sample. Limits are
// read anew each time, so it changes with them. It rises only when everything that was
// read before could be read again: files that are unreadable for a while change nothing
// but the Reason.
func (m *Monitor) Ceiling() Ceiling { return m.state.Load().ceiling }

// Ready returns false while the severity has been critical for NotReadyAfter or longer
// without a break. It is for a readiness probe, which takes the process out of a load
// balancer. A liveness probe must not use it: a process that sheds is alive, and a restart
// would lose what it holds.
func (m *Monitor) Ready() bool {
	s := m.state.Load()
	return s.severity != Critical || time.Since(s.since) < m.config.Load().NotReadyAfter
}

// Reconfigure replaces the configuration whole. On an error, which names the wrong
// field, nothing has changed. The severity stays until the next sample, which is judged
// by the new thresholds and looks again for what was missing.
func (m *Monitor) Reconfigure(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	m.config.Store(&c)
	m.wake()
	return nil
}

// Watch calls fn soon with the severity and the ceiling, and then after each sample that
// has changed one of them, until stop is called or the monitor is closed. fn is called from
// the goroutine that samples, under no lock: it must return soon, since no sample is taken
// until then, and it may call the monitor, but neither stop nor Close. It must not panic:
// nobody recovers it. If it exits its goroutine, it is as if stop had been called. After
// stop or Close has returned fn is not called any more. Calling stop again does nothing.
// On a closed monitor, and for a nil fn, Watch does nothing.
func (m *Monitor) Watch(fn func(Severity, Ceiling)) (stop func()) {
	id, ok := m.watch.add(fn)
	if !ok {
		return func() {}
	}
	m.wake()
	return func() { m.watch.remove(id) }
}

// Close ends the sampler, waits for it and for a collection that it has started, and
// leaves the severity Normal: what nobody measures any more is no reason to shed. Closing
// again does nothing.
func (m *Monitor) Close() {
	m.closeOnce.Do(func() {
		m.watch.close()
		close(m.stop)
	})
	<-m.stopped
}

// end is the last thing that the sampler does.
func (m *Monitor) end() {
	m.judge, m.since = judge{}, time.Now()
	m.publish(m.state.Load().sample)
	m.collecting.Wait()
	m.pace.running = false
	m.publish(m.state.Load().sample)
	close(m.stopped)
}

func (m *Monitor) wake() {
	select {
	case m.kick <- struct{}{}:
	default: // it is awake already
	}
}

// run samples on its own clock. A sample that is late is not made up for.
func (m *Monitor) run() {
	over := false
	defer func() {
		if !over { // a watcher has exited the goroutine
			go m.run()
		}
	}()
	period := m.config.Load().Period
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			over = true
			m.end()
			return
		case <-m.kick:
			if p := m.config.Load().Period; p != period {
				period = p
				t.Reset(period)
				if time.Since(m.state.Load().at) >= period {
					m.sample() // else a period that changes all the time would put it off for ever
				}
			}
		case freed := <-m.collected:
			m.pace.done(freed)
			m.publish(m.state.Load().sample)
		case <-t.C:
			m.sample()
		}
		m.watch.tell(m.judge.severity, m.state.Load().ceiling)
		m.force()
	}
}

// sample takes a sample and publishes what follows from it.
func (m *Monitor) sample() {
	now := time.Now()
	c := m.config.Load()
	if c != m.applied {
		m.sampler.forget()
		m.applied = c
	}
	root := c.Root
	if root == nil {
		root = os.DirFS("/")
	}
	s := m.sampler.take(now, root, c)
	grades := s.grades()
	m.samples++
	last, lasted := m.judge.severity, now.Sub(m.since)
	changed := m.judge.step(now, &grades, s.killed, c.OOMHold)
	if changed {
		m.since = now
	}
	m.publish(s)
	if c.Logger != nil {
		m.logMissing(c.Logger, &s)
		if changed {
			m.logChange(c, &s, last, lasted)
		}
	}
}

func (m *Monitor) publish(s sample) {
	m.state.Store(&state{
		sample: s, config: m.applied, severity: m.judge.severity, cause: m.judge.cause, since: m.since, samples: m.samples,
		collections: m.pace.total, running: m.pace.running, freed: m.pace.freed,
	})
	m.severity.Store(uint32(m.judge.severity))
}

// force starts a collection when one is due. It takes longer than a sample may, so it has
// a goroutine of its own; samples go on meanwhile, and the severity, with all that it
// leads to, is public before it starts.
func (m *Monitor) force() {
	now := time.Now()
	if !m.pace.due(now, m.judge.severity, m.applied) {
		return
	}
	m.pace.start(now)
	m.publish(m.state.Load().sample)
	m.collecting.Go(func() { m.collected <- m.collector.run() })
}
