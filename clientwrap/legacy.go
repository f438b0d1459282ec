package clientwrap

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// cancelOf returns a request's deprecated Cancel channel, nil where there is none.
func cancelOf(r *http.Request) <-chan struct{} {
	//lint:ignore SA1019 callers still set it, http.Client among them
	return r.Cancel //nolint:staticcheck // as above
}

// legacy is a request's context that also ends with its deprecated Cancel channel.
// http.Client still sets one for its Timeout, so a goroutine watches the channel only
// if somebody waits for the end. The end of that deadline is in the context too, but a
// caller's own channel is not, and the two cannot be told apart.
type legacy struct {
	context.Context
	canceled <-chan struct{}
	once     sync.Once
	merged   context.Context
	cancel   context.CancelFunc
}

// Done returns a channel that is closed at the first end of the two.
func (l *legacy) Done() <-chan struct{} {
	l.once.Do(func() {
		l.merged, l.cancel = context.WithCancel(l.Context)
		go func() {
			select {
			case <-l.canceled:
				l.cancel()
			case <-l.merged.Done():
			}
		}()
	})
	return l.merged.Done()
}

// Err is context.Canceled when the channel was closed first. http.Client closes it at
// the deadline that the context has too, and either may be first to say so.
func (l *legacy) Err() error {
	if err := l.Context.Err(); err != nil {
		return err
	}
	select {
	case <-l.canceled:
	default:
		return nil
	}
	if at, timed := l.Deadline(); timed && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// end ends the goroutine. Nobody calls Done any more.
func (l *legacy) end() {
	if l.cancel != nil {
		l.cancel()
	}
}

// afterEither calls f in a goroutine of its own when a or b is closed. stop ends that.
func afterEither(a, b <-chan struct{}, f func()) (stop func() bool) {
	stopped := make(chan struct{})
	var once sync.Once
	go func() {
		select {
		case <-a:
			f()
		case <-b:
			f()
		case <-stopped:
		}
	}()
	return func() bool {
		once.Do(func() { close(stopped) })
		return true
	}
}
