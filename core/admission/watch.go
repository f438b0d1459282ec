package admission

import (
	"reflect"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// watch reads the ceiling and the heap every second until Close.
func (b *Budget) watch() {
	defer close(b.stopped)
	t := time.NewTicker(refresh)
	defer t.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-t.C:
			b.Refresh()
		}
	}
}

// Refresh reads the memory ceiling and the heap anew and applies what follows
// from them. The budget does so by itself every second.
func (b *Budget) Refresh() {
	b.heap.Store(b.readHeap())
	ceiling := b.readCeiling()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.set.Load()
	unread := ceiling.Reason != "" && ceiling.Reason != now.ceiling.Reason
	if now.ceiling.Bytes != 0 && (ceiling.Bytes == 0 || unread && ceiling.Bytes > now.ceiling.Bytes) {
		ceiling = now.ceiling // a file that cannot be read for once opens nothing
	}
	b.applyLocked(derive(now.Config, ceiling, b.heap.Load(), b.seen()))
}

// Reconfigure replaces the configuration at once and whole. On an error, which
// names the wrong field, nothing has changed. Leases that are out stay good; a
// larger budget is granted at once, a smaller one is reached as leases end.
// Waiters keep their arrival and are measured by the new QueueTimeout; when the
// new mode does not enforce, all are admitted.
func (b *Budget) Reconfigure(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log.Use(c.Logger)
	b.applyLocked(derive(c, b.set.Load().ceiling, b.heap.Load(), b.seen()))
	return nil
}

func (b *Budget) applyLocked(next *settings) {
	last := b.set.Load()
	if next.severity == pressure.Critical {
		// Each time: who had looked at the last settings may have come to wait since.
		defer b.q.Shed(heavy)
	}
	if reflect.DeepEqual(last, next) {
		return
	}
	b.set.Store(next)
	b.q.Reconfigure(next.queue())
	b.exempt.SetLimit(int64(next.MaxExempt))
	b.decoded.SetLimit(next.limit * amplification)
	if next.Mode != gate.Enforce {
		b.q.AdmitAll()
	}
}
