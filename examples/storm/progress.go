package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells how the storm goes: a line a second, or on a terminal one line that
// changes. It is for one goroutine, which plays one stage at a time. The zero progress
// tells nothing.
type progress struct {
	to   io.Writer // nil = nobody listens
	live bool      // to is a terminal that shows nothing else meanwhile
}

// isTerminal reports whether a line that was written to w can be written over.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// say tells a line that stays.
func (p progress) say(format string, args ...any) {
	if p.to != nil {
		_, _ = fmt.Fprintf(p.to, format+"\n", args...) // who made to looks at the error
	}
}

// How often a stage is told, and how much of it fits on a line of a terminal.
const (
	plainPeriod = time.Second
	livePeriod  = 200 * time.Millisecond
	liveWidth   = 79
)

// follow tells of a stage until stop is called, which tells of its end. stop must be
// called once.
func (p progress) follow(s *stage) (stop func()) {
	if p.to == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		period := plainPeriod
		if p.live {
			period = livePeriod
			p.tell(s)
		}
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.tell(s)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		p.tell(s)
		if p.live {
			_, _ = fmt.Fprintln(p.to)
		}
	}
}

// tell writes a stage's line. On a terminal it takes the place of the one before, and
// blanks hide what that had more; a longer line would wrap, and could not be replaced.
func (p progress) tell(s *stage) {
	line := s.String()
	if !p.live {
		_, _ = fmt.Fprintln(p.to, line)
		return
	}
	_, _ = fmt.Fprintf(p.to, "\r%-*.*s", liveWidth, liveWidth, line)
}

// The phases of a stage. Between sending and answering there is no call: whoever has
// sent everything waits for answers.
const (
	starting  = "starting"
	sending   = "sending"
	answering = "answering"
	settling  = "settling" // the back end works on
	stopping  = "stopping"
	over      = "over"
)

// stage is the storm against one app, as it goes on.
type stage struct {
	app   string
	total int // requests
	begin time.Time

	mu    sync.Mutex
	phase string
	sent  int
	ended map[verdict]int
}

func newStage(app string, total int) *stage {
	return &stage{app: app, total: total, begin: time.Now(), phase: starting, ended: map[verdict]int{}}
}

func (s *stage) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phase
}

// do counts n requests that are sent together, until send returns what became of each.
func (s *stage) do(n int, send func() []outcome) []outcome {
	s.mu.Lock()
	s.sent += n
	s.mu.Unlock()
	ends := send()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range ends {
		s.ended[o.verdict]++
	}
	return ends
}

// String says how it stands. Who waits has been sent and has no answer yet: it may be
// in a queue, be held by the app, or be on its way.
func (s *stage) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	phase, waiting := s.phase, s.sent
	for _, n := range s.ended {
		waiting -= n
	}
	if phase == sending && s.sent == s.total {
		phase = answering
	}
	line := fmt.Sprintf("%s %ds %s: sent %d/%d, answered %d, waiting %d, refused %d",
		s.app, int(time.Since(s.begin).Seconds()), phase, s.sent, s.total, s.ended[answered], waiting, s.ended[refused])
	for _, v := range []verdict{lost, wrong} {
		if n := s.ended[v]; n > 0 {
			line += fmt.Sprintf(", %s %d", v, n)
		}
	}
	return line
}
