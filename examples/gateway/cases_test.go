package main

import (
	"io"
	"testing"
	"time"
)

// Public reports of what went wrong for others, run against the gateway from outside:
// over sockets, with its configuration file and its status. The ids are those of the
// project's list of acceptance cases; sizes are scaled where a case has a budget under
// the least one, 8 MiB.
//
// Of the cases about bytes these cannot be driven from outside, and stand elsewhere:
//
//	A4        the opposite of A3, which was decided against
//	A10       frames after an upgrade: the gateway has no route that upgrades, and passes
//	          none on (TestNoUpgrade)
//	A14, A15  what a lease holds after growing failed, and the gauge when a waiter is canceled:
//	          core/admission; their outside is here
//	A18, A19  negative costs, releases after a failure: core/gate, core/admission, core/internal/waitq;
//	          a negative length is in A2
//	A21       rate buckets are not part of the project
//	A24       decompression: core/admission (Gunzip); the gateway inflates nothing
//	A28       Fiber's streaming mode: its adapter; the same for net/http is here
//	A31       bytes that waiters hold: core/admission; over net/http a waiter holds none,
//	          which is what is looked at here
//	A33       leases of many slots: core/internal/waitq; bytes are such a lease (A12)
func TestCases(t *testing.T) {
	for _, c := range []struct {
		id  string
		run func(*testing.T)
	}{
		{"A1", caseA1}, {"A2", caseA2}, {"A3", caseA3}, {"A5", caseA5}, {"A6", caseA6}, {"A8", caseA8},
		{"A11", caseA11}, {"A12", caseA12}, {"A14", caseA14}, {"A15", caseA15}, {"A16", caseA16}, {"A22", caseA22},
		{"A25", caseA25}, {"A27", caseA27}, {"A28", caseA28}, {"A29", caseA29}, {"A31", caseA31}, {"A32", caseA32},
		{"C9", caseC9}, {"C14", caseC14}, {"E1", caseE1}, {"K5", caseK5}, {"K9", caseK9}, {"K10", caseK10},
	} {
		t.Run(c.id, c.run)
	}
}

// answered is the answer to one of many requests.
type answered struct {
	i      int
	head   reply
	answer string
}

// flood sends n heads at the same moment, each on its own connection. Whoever is refused is
// answered; whoever is admitted is not before its body is sent.
func (a *app) flood(n int, path string, lines ...string) (conns []*rawConn, answers chan answered) {
	a.t.Helper()
	answers = make(chan answered, n)
	barrier := make(chan struct{})
	for i := range n {
		c := a.dial()
		conns = append(conns, c)
		go func() {
			<-barrier
			_ = c.postQuietly(path, lines...) // the answer tells
			if head, answer, err := c.tryAnswer(); err == nil {
				answers <- answered{i, head, answer}
			} else {
				answers <- answered{i: i, answer: err.Error()} // status 0
			}
		}()
	}
	close(barrier)
	return conns, answers
}

// refused takes n answers, all of them refusals for the reason.
func (a *app) refused(n int, answers <-chan answered, status int, reason string) (who map[int]bool) {
	a.t.Helper()
	who = map[int]bool{}
	for range n {
		got := <-answers
		requireRefused(a.t, got.head, got.answer, status, reason)
		who[got.i] = true
	}
	return who
}

// trickle sends a byte now and then, as slow clients do, until it is answered.
func trickle(c *rawConn, every time.Duration) answered {
	done := make(chan answered, 1)
	go func() {
		head, answer, err := c.tryAnswer()
		if err != nil {
			answer = err.Error()
		}
		done <- answered{head: head, answer: answer}
	}()
	tick := time.NewTicker(every) // a real client on a real socket
	defer tick.Stop()
	for {
		select {
		case got := <-done:
			return got
		case <-tick.C:
			_, _ = io.WriteString(c, "x")
		}
	}
}
