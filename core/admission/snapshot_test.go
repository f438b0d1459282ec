package admission

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// The names of the snapshot's fields are a promise to dashboards.
func TestSnapshotNames(t *testing.T) {
	b := budget(t, 8*mib, nil)
	raw, err := json.Marshal(b.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range fields {
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name) {
			t.Errorf("%q is not in snake_case", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	want := strings.Fields(`
		admitted_total budget_source canceled_total ceiling_bytes count_cap count_cap_enabled decoded_bytes
		exempt_inflight heap_live_bytes heavy_inflight inflight inflight_bytes max_body_bytes max_inflight_bytes mode
		oldest_heavy_s oldest_wait_s pressure_severity queued_bytes queued_total shed_total sheds_by_reason typical_hold_heavy_s
		typical_hold_s waiting waiting_bytes waiting_heavy would_admit_total would_queue_total would_refuse_total`)
	if !slices.Equal(names, want) {
		t.Errorf("the fields are\n%s\nwant\n%s", names, want)
	}
}

// A busy budget, number by number.
func TestSnapshotValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMachine(512 * mib) // a budget of 16 MiB
		m.heap.Store(100 * mib)
		b := budgetOn(t, m, func(c *Config) { c.MaxHeavyInFlight, c.Exempt = 10, []string{"/livez"} })
		heavy, light := admit(t, b, 15*mib), admit(t, b, 100*kib)
		exempt, err := b.Acquire(t.Context(), gate.Request{Path: "/livez"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w := acquire(t.Context(), b, gate.Request{Bytes: 2 * mib, Buffered: mib})
		time.Sleep(3 * time.Second)
		_, err = b.Acquire(t.Context(), gate.Request{Bytes: 17 * mib})
		refused(t, err, gate.BodyExceedsBudget)

		got, err := json.Marshal(b.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		want := `{"mode":"enforce","inflight_bytes":15831040,"max_inflight_bytes":16777216,"budget_source":"cgroup","pressure_severity":"normal",` +
			`"ceiling_bytes":536870912,"max_body_bytes":16777216,"inflight":2,"heavy_inflight":1,"exempt_inflight":1,` +
			`"count_cap_enabled":true,"count_cap":20,"decoded_bytes":0,"heap_live_bytes":104857600,"waiting":1,` +
			`"waiting_heavy":1,"waiting_bytes":2097152,"queued_bytes":1048576,"oldest_wait_s":3,"oldest_heavy_s":5,` +
			`"typical_hold_s":0,"typical_hold_heavy_s":0,"admitted_total":2,"queued_total":1,"shed_total":1,` +
			`"sheds_by_reason":{"body_exceeds_budget":1},"canceled_total":0,"would_admit_total":0,"would_queue_total":0,` +
			`"would_refuse_total":0}`
		if string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		for _, l := range []gate.Lease{heavy, light, exempt} {
			l.Release()
		}
		granted(t, w).Release()
		if s := b.Snapshot(); s.Admitted != 3 || s.OldestHeavyS != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What could not be read is told, and a budget without a ceiling is the least.
func TestSnapshotUnknownCeiling(t *testing.T) {
	b := budgetOn(t, newMachine(0), nil)
	s := b.Snapshot()
	if s.BudgetSource != "unknown" || s.CeilingNote == "" || s.CeilingBytes != 0 || s.MaxInflightBytes != 8*mib {
		t.Errorf("%+v", s)
	}
}

// More heavy leases than the registry has places for: none is lost or mixed up.
func TestOldestHeavyOverflow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 2*gib, nil)
		var out []gate.Lease
		for range 1000 {
			out = append(out, admit(t, b, 256*kib))
			time.Sleep(time.Second)
		}
		if s := b.Snapshot(); s.OldestHeavyS != 1000 || s.HeavyInflight != 1000 {
			t.Errorf("oldest %v of %d, want 1000 s", s.OldestHeavyS, s.HeavyInflight)
		}
		for _, l := range out {
			l.Release()
		}
		l := admit(t, b, mib)
		time.Sleep(3 * time.Second)
		if s := b.Snapshot(); s.OldestHeavyS != 3 {
			t.Errorf("oldest %v, want 3 s", s.OldestHeavyS)
		}
		l.Release()
	})
}

// No name of a caller leaves the package.
func TestNoFlowLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters = 1 })
		const secret = "tenant-of-some-name"
		full := admit(t, b, 8*mib)
		r := gate.Request{Bytes: mib, Flow: secret, Lane: secret, Path: "/" + secret, Route: secret, ContentType: secret, Method: secret}
		w := acquire(gate.WithFlow(t.Context(), secret, 1), b, r)
		_, err := b.Acquire(t.Context(), r)
		texts := []string{refused(t, err, gate.AdmissionBusy).Error()}
		time.Sleep(15 * time.Second)
		texts = append(texts, refusedNow(t, w, gate.QueueTimeout).Error())
		for _, f := range []gate.Format{gate.Problem, gate.OpenAI, gate.Anthropic} {
			body, _ := (refused(t, err, gate.AdmissionBusy)).Render(f)
			texts = append(texts, string(body))
		}
		raw, err := json.Marshal(b.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(texts, string(raw)) {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells the caller's name", text)
			}
		}
		full.Release()
	})
}
