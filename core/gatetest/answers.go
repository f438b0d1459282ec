package gatetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// answerScenes: what a refused client reads.
func answerScenes() []scene {
	return []scene{
		both("A32_every_reason_in_every_format", everyReason),
		both("T31_refusal_of_the_handler_reads_alike", handlersRefusal),
		both("T32_T34_H9_one_answer_and_no_handler", oneAnswer),
		both("T39_retry_after_is_whole_seconds", retryAfter),
		both("errors_of_other_kinds_are_not_told", foreignErrors),
		both("T40_answers_keep_what_is_set_outside", keepsOutside),
		both("H3_mixed_load_mixes_nothing_up", mixedLoad),
	}
}

// reasons are all that are answered.
func reasons() []gate.Reason {
	return []gate.Reason{
		gate.PayloadTooLarge, gate.BodyExceedsBudget, gate.CostExceedsLimit, gate.AdmissionBusy, gate.QueueFull,
		gate.TenantQueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.NoTarget, gate.ResourcePressure,
		gate.ShuttingDown, gate.SlowBody, gate.MaxHold, gate.SlotLost,
	}
}

func formats() []gate.Format { return []gate.Format{gate.Problem, gate.OpenAI, gate.Anthropic} }

// everyReason: status, marker, Retry-After, type and body are the rejection's own.
func everyReason(e *env) {
	for _, format := range formats() {
		g := new(refusing)
		s := e.start(Options{Gate: g, Format: format})
		for _, reason := range reasons() {
			rej := refusal(reason, nil)
			g.set(fmt.Errorf("wrapped: %w", rej))
			s.checkRefusal(s.get(call{route: Ignore}), rej, format)
		}
		for i, d := range s.decidedSoFar() {
			if !errors.Is(d.Err, reasons()[i]) {
				e.Errorf("the hook was told %v of a %s", d.Err, reasons()[i])
			}
		}
	}
}

func (s *server) checkRefusal(a answer, rej *gate.Rejection, format gate.Format) {
	e, what := s.e, fmt.Sprintf("%s as %s: ", rej.Reason, format)
	e.Helper()
	body, contentType := rej.Render(format)
	equal(e, what+"status", a.StatusCode, rej.Status())
	equal(e, what+"marker", strings.Join(a.Header.Values(gate.MarkerHeader), ","), string(rej.Reason))
	equal(e, what+"Retry-After", strings.Join(a.Header.Values("Retry-After"), ","), rej.RetryAfterSeconds())
	equal(e, what+"body", a.text, string(body))
	if got := a.Header.Get("Content-Type"); got != contentType && !strings.HasPrefix(got, contentType+";") {
		e.Errorf("%scontent type: got %s, want %s", what, got, contentType)
	}
}

// handlersRefusal: a refusal that comes up inside the handler is answered in the
// format of the middleware, by Refuse and by returning the error.
func handlersRefusal(e *env) {
	for _, format := range formats() {
		s := e.start(Options{Gate: e.slots(1, 0), Format: format})
		for _, reason := range reasons() {
			rej := refusal(reason, nil)
			s.failed.Store(rej)
			for _, how := range []string{"refuse", "return"} {
				s.checkRefusal(s.get(call{route: Fail, arg: how}), rej, format)
			}
		}
	}
}

// oneAnswer: a refused request gets exactly one answer, its handler does not run, and
// what follows on the connection is understood.
func oneAnswer(e *env) {
	s := e.start(Options{Gate: e.slots(0, 0), Inner: e.slots(1, 0)})
	for range 5 {
		a := s.get(call{route: Ignore})
		equal(e, "status", a.StatusCode, http.StatusServiceUnavailable)
		equal(e, "one JSON document", json.Valid([]byte(a.text)), true)
		for _, name := range []string{gate.MarkerHeader, "Retry-After", "Content-Type"} {
			equal(e, name+" headers", len(a.Header.Values(name)), 1)
		}
	}
	equal(e, "requests at the handler", s.seen(Ignore), 0)
	s.kept()
	s.silent()
	if e.protocol == http2 {
		return
	}
	c := s.dial()
	c.write(head("GET "+string(Ignore)) + head("HEAD "+string(Ignore)) + head("GET "+string(Ignore), "Connection: close"))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
		resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
		if err != nil {
			e.Fatalf("pipelined %s: %v", method, err)
		}
		equal(e, "status", resp.StatusCode, http.StatusServiceUnavailable)
		var text any
		err = json.NewDecoder(resp.Body).Decode(&text)
		equal(e, "a body for "+method, err == nil, method != http.MethodHead)
		_ = resp.Body.Close()
	}
	equal(e, "after the last answer", c.rest(), "")
}

// retryAfter: whatever a gate says, it is a whole number of at least 1, or nothing.
func retryAfter(e *env) {
	g := new(refusing)
	s := e.start(Options{Gate: g})
	for _, d := range []time.Duration{
		1<<63 - 1, -1 << 63, -time.Second, 0, 1, time.Millisecond, 999 * time.Millisecond, time.Second, time.Second + 1, 90*time.Minute + time.Millisecond,
	} {
		rej := refusal(gate.QueueFull, nil)
		rej.RetryAfter = d
		g.set(rej)
		a := s.get(call{route: Ignore})
		text := a.Header.Get("Retry-After")
		if d <= 0 {
			equal(e, fmt.Sprint("Retry-After for ", d), text, "")
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || float64(n) < d.Seconds() || float64(n) > d.Seconds()+1 {
			e.Errorf("Retry-After for %v: %q", d, text)
		}
	}
}

// foreignErrors: the error of a gate that is no *gate.Rejection is answered 503 and
// kept to ourselves; the hook sees it.
func foreignErrors(e *env) {
	secret := errors.New("dial redis://user:secret@10.0.0.7: refused")
	for _, format := range formats() {
		g := new(refusing)
		s := e.start(Options{Gate: g, Format: format})
		for i, err := range []error{secret, fmt.Errorf("%w", context.DeadlineExceeded)} {
			g.set(err)
			a := s.get(call{route: Ignore})
			equal(e, "status", a.StatusCode, http.StatusServiceUnavailable)
			equal(e, "marker set", a.Header.Get(gate.MarkerHeader) != "", true)
			equal(e, "JSON", json.Valid([]byte(a.text)), true)
			if strings.Contains(a.text+fmt.Sprint(a.Header), "secret") {
				e.Errorf("the gate's error is told: %v %s", a.Header, a.text)
			}
			if d := s.decision(i); !errors.Is(d.Err, err) {
				e.Errorf("the hook was told %v in place of %v", d.Err, err)
			}
		}
		equal(e, "requests at the handler", s.seen(Ignore), 0)
	}
}

// keepsOutside: what CORS in front of the gate has set is in the refusal, without
// which a browser cannot read it, and in every other answer.
func keepsOutside(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g})
	s.failed.Store(refusal(gate.NoTarget, nil))
	release := e.fill(g, 0)
	refused := s.get(call{route: Ignore})
	release()
	for _, a := range []answer{refused, s.get(call{route: Ignore}), s.get(call{route: Fail, arg: "return"})} {
		equal(e, fmt.Sprint("CORS header of a ", a.StatusCode), a.Header.Get("Access-Control-Allow-Origin"), "*")
	}
}

// mixedLoad: many clients at once, served, queued, timed out, too large and cut off,
// each get what is theirs and nothing else.
func mixedLoad(e *env) {
	const clients, each = 6, 15
	b := e.budget(func(c *admission.Config) { c.QueueTimeout, c.HardMaxBodyBytes = 30*time.Millisecond, 2*mib })
	const others = 7 // MiB, so that there is room for one large body at a time
	var giveBack []func()
	for range others {
		giveBack = append(giveBack, e.fill(b, mib))
	}
	s := e.start(Options{Gate: b, Inner: e.slots(clients/2, 10*time.Millisecond)})
	tooLarge := blob(5 * mib / 2)
	done := make(chan [2]int, clients)
	for client := range clients {
		go func() {
			var served, refused int
			for i := range each {
				switch s.mixed(client, i, tooLarge) {
				case http.StatusOK:
					served++
				case http.StatusRequestEntityTooLarge:
					refused++
				}
			}
			done <- [2]int{served, refused}
		}()
	}
	var served, refused int
	for range clients {
		n := <-done
		served, refused = served+n[0], refused+n[1]
	}
	equal(e, "nobody served", served == 0, false)
	equal(e, "bodies refused as too large", refused, clients*each/5)
	e.await("all that is held comes back", func() bool { return b.Snapshot().Inflight == others })
	for _, f := range giveBack {
		f()
	}
	s.silent()
}

// mixed sends one of those requests and returns its status, 0 if it was cut off.
func (s *server) mixed(client, i int, tooLarge []byte) int {
	e, body, cutOff := s.e, blob(1000+100*client+i), i%10 == 9
	switch i % 5 {
	case 0:
		body = blob(600_000 + 100*client + i) // no two of these fit
	case 1:
		body = tooLarge
	}
	c := call{route: Echo, length: int64(len(body))}
	if i%2 == 0 && i%5 != 1 { // unannounced, it may be refused for another reason first
		c.length = 0
	}
	if cutOff {
		ctx, leave := context.WithTimeout(e.ctx, 5*time.Millisecond)
		defer leave()
		c.ctx = ctx
	}
	a, err := s.upload(c, body)
	switch {
	case err != nil:
		if !cutOff {
			e.Errorf("no answer: %v", err)
		}
		return 0
	case a.StatusCode == http.StatusOK:
		equal(e, "a client's own body", a.text, digestOf(body))
	case a.Header.Get(gate.MarkerHeader) == "" || !json.Valid([]byte(a.text)):
		e.Errorf("neither served nor refused: %d %q", a.StatusCode, a.text)
	}
	return a.StatusCode
}
