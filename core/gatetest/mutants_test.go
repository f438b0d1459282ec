package gatetest

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// mutants are adapters with one bug each, and the scenes that must find it, by the
// beginning of their names; "/HTTP2" where only that protocol shows it.
var mutants = []struct {
	bug   string
	found string // separated by blanks
}{
	{"releases without defer", "T01 T02 T10"},
	{"releases too early", "T03 T06 T05 T09 T04 A12 T30"},
	{"releases when the body ends", "F4 T30"},
	{"has a Release that does nothing", "T09 T05"},
	{"wants a live lease", "A19"},
	{"swallows panics", "T01 T02"},
	{"wraps panics", "T01 T02"},
	{"admits again", "T04 H14"},
	{"goes on after a refusal", "T32 A25_T19"},
	{"clones the request", "T38"},
	{"wraps the body in place", "T17_expect_admitted"},
	{"puts no body under a lease", "T22"},
	{"reads bodies without the lease", "T20 K9"},
	{"reads the body first", "A27 T17_A27 A11 A2"},
	{"asks for a byte more", "full_budget gate_is_told"},
	{"says 100 first", "T17_A27 A27"},
	{"moves deadlines for ever", "H8_reader/HTTP2"},
	{"has one lease for the body", "body_under"},
	{"asks inside without the body", "body_under"},
	{"wraps the writer", "T35 T05 T06"},
	{"wraps the writer with Unwrap", "T35 T05 T37"},
	{"never closes", "T18/HTTP1 A25_K9 T23"},
	{"always closes", "refusal_without"},
	{"closes HTTP/2 too", "T18/HTTP2 T20/HTTP2"},
	{"closes whatever was read", "refusal_of_a_read_body second_gate_refuses"},
	{"lingers without end", "A25_K9"},
	{"leaves the timeouts alone", "T14_queue_time"},
	{"restarts ReadTimeout at once", "T14_body_deadline"},
	{"leaves the deadline behind", "body_deadline"},
	{"takes the write deadline off", "T07"},
	{"lets slow senders be", "K9"},
	{"waits whoever leaves", "T11_T12 T11_client_gone_with_an/HTTP2 T11_client_gone_while T11_nothing"},
	{"answers who has left", "T11_nothing"},
	{"answers twice", "T32 H8_refused H3"},
	{"answers without a marker", "A32 T15 H3"},
	{"always says Retry-After", "A32 T39 A3"},
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
	{"asks with the raw path as route", "T45"},
	{"tells no content type", "T43 gate_is_told"},
	{"skips by prefix", "K16"},
	{"hands out another context", "F3 bytes_come_back second_gate_inside T35"},
}

// Each bug is found by the scenes that are there for it.
func TestMutantsAreFound(t *testing.T) {
	sound := newSuite(Adapter{Start: sample{}.start, ItemRoute: "unmatched"}, time.Second)
	for _, m := range mutants {
		t.Run(m.bug, func(t *testing.T) {
			s := newSuite(Adapter{Start: sample{bug: m.bug}.start, ItemRoute: "unmatched"}, sound.patience)
			for name := range strings.FieldsSeq(m.found) {
				s.mustFail(t, name)
			}
		})
	}
}

// What is not declared is found, and so is what is declared and not true.
func TestDeclarationsMustBeTrue(t *testing.T) {
	for _, d := range []struct {
		name  string // of the field
		found string // with the deviation and without its declaration, and the other way round
	}{
		{"BuffersBodies", "A11 T17_A27 gate_is_told"},
		{"NoDisconnectSignal", "T11_T12"},
		{"NoHTTP2", "T06/HTTP2"},
		{"NoTrailers", "T38"},
		{"NoInterim", "T37"},
		{"NotNetHTTP", "T35"},
	} {
		t.Run(d.name, func(t *testing.T) {
			var declared Deviations
			reflect.ValueOf(&declared).Elem().FieldByName(d.name).SetBool(true)
			found := d.found
			if d.name == "NoHTTP2" {
				found = "declared_no_HTTP2"
			}
			for name := range strings.FieldsSeq(found) {
				newSuite(Adapter{Start: sample{}.start, ItemRoute: "unmatched", Deviations: declared}, time.Second).mustFail(t, name)
			}
			poor := sample{poor: true}
			missing := poor.deviations()
			reflect.ValueOf(&missing).Elem().FieldByName(d.name).SetBool(false)
			for name := range strings.FieldsSeq(d.found) {
				newSuite(Adapter{Start: poor.start, ItemRoute: "unmatched", Deviations: missing}, time.Second).mustFail(t, name)
			}
		})
	}
}

// mustFail performs the one scene whose name begins with name.
func (s *suite) mustFail(t *testing.T, name string) {
	t.Helper()
	name, only, _ := strings.Cut(name, "/")
	played := 0
	for _, c := range s.cases() {
		if !strings.HasPrefix(c.name, name) {
			continue
		}
		played++
		for _, p := range c.protocols {
			if only != "" && string(p) != only {
				continue
			}
			start := time.Now()
			r := s.judge(c, p)
			if r.Failed() {
				t.Logf("%s: %.1fs %.150q", c.name, time.Since(start).Seconds(), r.text())
				return
			}
		}
		t.Errorf("%s does not find it", c.name)
	}
	if played != 1 {
		t.Errorf("%d scenes begin with %s", played, name)
	}
}
