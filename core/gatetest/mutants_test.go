package gatetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// mutants are adapters with one bug each, and the scenes that must find it, by the
// beginning of their names; "/HTTP2" where only that protocol shows it.
var mutants = []struct {
	bug   string
	found string // separated by blanks
}{
	{"releases without defer", "T01 T10"},
	{"releases too early", "T03 T06 T05 T09 T04 A12 T30"},
	{"releases when the body ends", "F4 T30 K10 T11_K10"},
	{"has a Release that does nothing", "T09 T05"},
	{"wants a live lease", "A19"},
	{"swallows panics", "T01 T02"},
	{"wraps panics", "T01 T02"},
	{"admits again", "T04 H14"},
	{"keeps its mark", "redispatch_after"},
	{"goes on after a refusal", "T32 A25_T19"},
	{"clones the request", "T38"},
	{"wraps the body in place", "T17_expect_admitted"},
	{"puts no body under a lease", "T22"},
	{"reads bodies without the lease", "T20 K9"},
	{"reads the body first", "A27 T17_A27 A11 A2_false"},
	{"asks for a byte more", "full_budget gate_is_told"},
	{"says 100 first", "T17_A27 A27"},
	{"moves deadlines for ever", "H8_reader/HTTP2"},
	{"moves deadlines of others", "H8_reader/HTTP2"},
	{"has one lease for the body", "body_under"},
	{"asks inside without the body", "body_under"},
	{"wraps the writer", "T35 T05 T06"},
	{"wraps the writer with Unwrap", "T35 T05 T37"},
	{"never closes", "T18/HTTP1 A25_K9 T23"},
	{"always closes", "refusal_without"},
	{"closes HTTP/2 too", "T18/HTTP2 T20/HTTP2"},
	{"closes whatever was read", "refusal_of_a_read_body second_gate_refuses"},
	{"resets who does not wait for 100", "A25_T19/HTTP1"},
	{"refuses for nothing", "T31"},
	{"lingers without end", "A25_K9"},
	{"leaves the timeouts alone", "T14_queue_time"},
	{"restarts ReadTimeout at once", "T14_body_deadline"},
	{"leaves the deadline behind", "T08"},
	{"takes the write deadline off", "T07"},
	{"lets slow senders be", "K9"},
	{"waits whoever leaves", "T11_T12 T11_client_gone_with_an/HTTP2 T11_client_gone_while T11_nothing"},
	{"answers who has left", "T11_nothing"},
	{"answers twice", "T32 H8_refused H3"},
	{"always tells the wait", "server_timing"},
	{"tells no wait of who is refused", "server_timing"},
	{"answers without a marker", "A32 T15 H3"},
	{"always says Retry-After", "A32 T39 A3_what"},
	{"says Retry-After in fractions", "T39"},
	{"clears the headers", "T40"},
	{"forgets the format", "T31"},
	{"does not look into errors", "T31 second_gate_refuses T20"},
	{"tells the gate's error", "errors_of_other_kinds"},
	{"tells no refusals", "decisions T11_T12"},
	{"tells twice", "decisions T04"},
	{"trusts X-Forwarded-For", "T42"},
	{"trusts X-Priority", "T42"},
	{"overlooks the context's flow", "H13"},
	{"overlooks the flow that is set", "T43"},
	{"labels with the raw path", "T45 T47"},
	{"labels with the raw method", "T45"},
	{"knows few methods", "T47"},
	{"asks with the raw path as route", "T45"},
	{"tells no content type", "T43 gate_is_told"},
	{"asks for one after the other", "T16"},
	{"skips by prefix", "K16"},
	{"hands out another context", "F3 bytes_come_back second_gate_inside T35"},
}

// Each bug is found by the scenes that are there for it.
func TestMutantsAreFound(t *testing.T) {
	var all []hunt
	for _, m := range mutants {
		if strings.HasPrefix(m.bug, "moves deadlines") && raceEnabled {
			t.Logf("skipped: %q is a data race within net/http, which the detector holds against the test", m.bug)
			continue
		}
		for name := range strings.FieldsSeq(m.found) {
			all = append(all, hunt{m.bug, sample{bug: m.bug}.adapter(), sample{}.adapter(), name})
		}
	}
	allFound(t, all)
}

// Long flows that are kept are found, which only shows while nothing else runs.
func TestKeptFlowsAreFound(t *testing.T) {
	s := newSuite(sample{bug: "keeps all flows"}.adapter(), time.Second)
	for _, c := range s.cases() {
		if strings.HasPrefix(c.name, "T44") && !s.judge(c, http1, 1).Failed() {
			t.Error("T44 does not find it")
		}
	}
}

// What is not declared is found, and so is what is declared and not true.
func TestDeclarationsMustBeTrue(t *testing.T) {
	var all []hunt
	for _, d := range []struct {
		name               string // of the field
		undeclared, untrue string
	}{
		{"BuffersBodies", "A11 T17_A27 gate_is_told", "A11 T17_A27 gate_is_told"},
		{"Prefetches", "T17_A27 gate_is_told A25_K9", "A27_continue gate_is_told"},
		{"NoDisconnectSignal", "T11_T12", "T11_T12"},
		{"NoHTTP2", "T06/HTTP2", "declared_no_HTTP2"},
		{"NoTrailers", "T38", "T38"},
		{"NoInterim", "T37", "T37"},
		{"NotNetHTTP", "T35", "T35"},
	} {
		rich, poor := sample{}.adapter(), sample{poor: true}.adapter()
		if d.name == "Prefetches" { // which shows where bodies are not buffered whole
			poor = sample{peek: true}.adapter()
		}
		silent, liar := poor, rich
		silent.Deviations.Prefetches = d.name != "BuffersBodies" && poor.Deviations.Prefetches // it says part of the same
		reflect.ValueOf(&silent.Deviations).Elem().FieldByName(d.name).SetBool(false)
		reflect.ValueOf(&liar.Deviations).Elem().FieldByName(d.name).SetBool(true)
		for name := range strings.FieldsSeq(d.undeclared) {
			all = append(all, hunt{d.name + " undeclared", silent, rich, name})
		}
		for name := range strings.FieldsSeq(d.untrue) {
			all = append(all, hunt{d.name + " untrue", liar, poor, name})
		}
	}
	allFound(t, all)
}

// hunt is a scene that must find what is wrong with an adapter.
type hunt struct {
	what    string
	adapter Adapter
	sound   Adapter // with which the scene passes
	scene   string
}

// allFound performs the hunts, several at once: most of them wait for what does not
// come.
func allFound(t *testing.T, all []hunt) {
	t.Helper()
	results := make([]error, len(all))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 6)
	for i, h := range all {
		turns <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-turns; wg.Done() }()
			results[i] = h.found()
		}()
	}
	wg.Wait()
	for i, h := range all {
		if err := results[i]; err != nil {
			t.Errorf("%s: %s: %v", h.what, h.scene, err)
		}
	}
}

// found returns an error unless the one scene whose name begins with that of the hunt
// fails, and passes with a sound adapter that has as much patience. That begins with
// little, as most bugs are seen in what does not come, and grows if it is not enough
// for the machine, and the scene's short times with it.
func (h hunt) found() error {
	var why error
	for patience := time.Second; patience < 20*time.Second; patience *= 2 {
		failed, err := h.fails(h.adapter, patience)
		switch {
		case err != nil:
			return err
		case failed == nil:
			why = errors.New("does not find it")
			continue
		}
		sound := newSuite(h.sound, patience)
		sound.together = true
		r := sound.judge(failed.scene, failed.protocol, patience/time.Second)
		if !r.Failed() {
			return nil
		}
		why = errors.New("it fails without the bug as well: " + r.text())
	}
	return why
}

// failure is where a scene has failed.
type failure struct {
	scene    scene
	protocol protocol
}

// fails performs the hunt's scene with a. It returns nil where it passes.
func (h hunt) fails(a Adapter, patience time.Duration) (*failure, error) {
	name, only, _ := strings.Cut(h.scene, "/")
	s, played := newSuite(a, patience), 0
	s.together = true
	var found *failure
	for _, c := range s.cases() {
		if !strings.HasPrefix(c.name, name) {
			continue
		}
		played++
		for _, p := range c.protocols {
			if found == nil && (only == "" || string(p) == only) && s.judge(c, p, patience/time.Second).Failed() {
				found = &failure{c, p}
			}
		}
	}
	if played != 1 {
		return nil, fmt.Errorf("%d scenes begin with that", played)
	}
	return found, nil
}
