package admission

import (
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// fieldCase sets one field of a Config.
type fieldCase struct {
	value any
	ok    bool
	path  string // what the error names, where that is not the field's own name
}

// fieldCases says for every field what is taken and what is not: J1, J2, J11. A
// zero that is taken means what it says, never "unbounded"; the tests of the
// single fields show what.
func fieldCases() map[string][]fieldCase {
	const most = math.MaxInt64
	count := func(zero, auto bool) []fieldCase {
		return []fieldCase{{-2, false, ""}, {-1, auto, ""}, {0, zero, ""}, {1, true, ""}, {1 << 20, true, ""}, {1<<20 + 1, false, ""}, {math.MaxInt, false, ""}, {math.MinInt, false, ""}}
	}
	size := func(zero, auto bool) []fieldCase {
		return []fieldCase{{gate.Size(-2), false, ""}, {gate.Size(-1), auto, ""}, {gate.Size(0), zero, ""}, {gate.Size(1), true, ""}, {gate.Size(most), true, ""}, {gate.Size(math.MinInt64), false, ""}}
	}
	span := func(zero bool) []fieldCase {
		return []fieldCase{{time.Duration(-1), false, ""}, {time.Duration(0), zero, ""}, {time.Duration(1), true, ""}, {time.Duration(most), true, ""}, {time.Duration(math.MinInt64), false, ""}}
	}
	factors := func(f ...Factor) []Factor { return f }
	return map[string][]fieldCase{
		"Mode":               {{gate.Mode(0), false, ""}, {gate.Off, true, ""}, {gate.Shadow, true, ""}, {gate.Enforce, true, ""}, {gate.Mode(4), false, ""}, {gate.Mode(255), false, ""}},
		"MaxInflightBytes":   size(false, true),
		"QueueTimeout":       span(true),
		"MaxWaiters":         count(true, false),
		"MaxQueuedBytes":     size(true, true),
		"HeavyBytes":         size(false, false),
		"HardMaxBodyBytes":   size(false, false),
		"MaxHeavyInFlight":   count(false, true),
		"HealthyHeadroom":    count(true, true),
		"HeapShedRatio":      {{0.0, false, ""}, {-0.1, false, ""}, {1e-9, true, ""}, {1.0, true, ""}, {1.0000001, false, ""}, {math.NaN(), false, ""}, {math.Inf(1), false, ""}, {math.Inf(-1), false, ""}, {1e300, false, ""}},
		"Exempt":             {{[]string(nil), true, ""}, {[]string{}, true, ""}, {[]string{"/a", "/b", "/a"}, true, ""}, {[]string{""}, false, "Exempt[0]"}, {[]string{"/a", "b"}, false, "Exempt[1]"}},
		"MaxExempt":          count(false, false),
		"ReleaseAt":          {{ReleaseAt(0), false, ""}, {FirstByte, true, ""}, {Return, true, ""}, {ReleaseAt(3), false, ""}},
		"BodyIdle":           span(false),
		"BodyTimeout":        span(false),
		"MinBodyRate":        size(true, false),
		"MinBodyRateWaiting": size(true, false),
		"MaxDecodedBytes":    size(false, false),
		"Logger":             {{(*slog.Logger)(nil), true, ""}, {slog.New(slog.DiscardHandler), true, ""}},
		"Pressure":           {{(*pressure.Monitor)(nil), true, ""}, {new(pressure.Monitor), true, ""}},
		"Factors": {
			{factors(), true, ""},
			{factors(Factor{ContentType: "a/b", Times: 64}, Factor{Route: "/x", Times: 1e-300}), true, ""},
			{factors(Factor{ContentType: "a/b", Times: 0}), false, "Factors[0].Times"},
			{factors(Factor{Route: "/x", Times: 1}, Factor{Route: "/y", Times: -1}), false, "Factors[1].Times"},
			{factors(Factor{Route: "/x", Times: math.NaN()}), false, "Factors[0].Times"},
			{factors(Factor{Route: "/x", Times: math.Inf(1)}), false, "Factors[0].Times"},
			{factors(Factor{Route: "/x", Times: 64.1}), false, "Factors[0].Times"},
			{factors(Factor{Times: 2}), false, "Factors[0]"},
			{factors(Factor{ContentType: "application/json; charset=utf-8", Times: 2}), false, "Factors[0].ContentType"},
		},
	}
}

// J1, J2, J11: a wrong value is an error which names the field, the value and where
// good ones come from, at New and at Reconfigure; then nothing has changed.
func TestJ2EachField(t *testing.T) {
	cases := fieldCases()
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if len(cases[name]) == 0 {
			t.Errorf("%s has no cases", name)
		}
		if tag := fields.Field(i).Tag.Get("yaml"); tag == "" || tag != strings.ToLower(tag) {
			t.Errorf("%s has the yaml tag %q", name, tag)
		}
		t.Run(name, func(t *testing.T) {
			b := budget(t, 16*mib, func(c *Config) { c.MaxHeavyInFlight = 7 })
			for _, f := range cases[name] {
				c := DefaultConfig()
				reflect.ValueOf(&c).Elem().Field(i).Set(reflect.ValueOf(f.value))
				before, books := b.set.Load(), b.Snapshot()
				m := newMachine(gib)
				made, err := open(c, m.readCeiling, m.heap.Load)
				if err == nil {
					admit(t, made, 1).Release() // whatever is taken works
					made.Close()
				}
				if (err == nil) != f.ok {
					t.Errorf("New with %v: %v, want ok %t", f.value, err, f.ok)
				}
				err = b.Reconfigure(c)
				if (err == nil) != f.ok {
					t.Errorf("Reconfigure with %v: %v, want ok %t", f.value, err, f.ok)
				}
				if err == nil {
					admit(t, b, 1).Release()
					continue
				}
				path := f.path
				if path == "" {
					path = name
				}
				shown := fmt.Sprint(f.value)
				if reflect.TypeOf(f.value).Kind() == reflect.Slice {
					shown = ""
				} else if v := reflect.ValueOf(f.value); v.CanInt() && v.Type() != reflect.TypeFor[time.Duration]() {
					shown = fmt.Sprint(v.Int())
				}
				for _, want := range []string{"admission: " + path + " is ", shown, "DefaultConfig"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v: the error lacks %q", err, want)
					}
				}
				if b.set.Load() != before || !reflect.DeepEqual(b.Snapshot(), books) {
					t.Errorf("%v: a failed Reconfigure has changed something", f.value)
				}
			}
		})
	}
}

// The zero Config is not a configuration.
func TestJ11ZeroConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Mode") {
		t.Errorf("New(Config{}) = %v, want an error about Mode", err)
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("DefaultConfig: %v", err)
	}
}

// What the fields' comments call the defaults.
func TestDefaults(t *testing.T) {
	want := Config{
		Mode: gate.Enforce, MaxInflightBytes: -1, QueueTimeout: 15 * time.Second, MaxWaiters: 1024, MaxQueuedBytes: -1,
		HeavyBytes: 262144, HardMaxBodyBytes: 52428800, MaxHeavyInFlight: -1, HealthyHeadroom: -1, HeapShedRatio: 0.75,
		MaxExempt: 256, ReleaseAt: FirstByte, BodyIdle: 10 * time.Second, BodyTimeout: 300 * time.Second,
		MinBodyRate: 1024, MinBodyRateWaiting: 65536, MaxDecodedBytes: 104857600,
	}
	if got := DefaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("DefaultConfig() = %+v, want %+v", got, want)
	}
}

// clamp(floor(ceiling x 0.25 / 8), 8 MiB, 2 GiB)
func TestBudgetFromCeiling(t *testing.T) {
	for _, c := range []struct{ ceiling, want int64 }{
		{0, 8 * mib}, {1, 8 * mib}, {64 * mib, 8 * mib}, {256 * mib, 8 * mib}, {256*mib + 31, 8 * mib}, {256*mib + 32, 8*mib + 1},
		{512 * mib, 16 * mib}, {gib, 32 * mib}, {4 * gib, 128 * mib}, {16 * gib, 512 * mib},
		{64 * gib, 2 * gib}, {65 * gib, 2 * gib}, {math.MaxInt64, 2 * gib},
	} {
		b := budgetOn(t, newMachine(c.ceiling), nil)
		source := "cgroup"
		if c.ceiling == 0 {
			source = "unknown"
		}
		if s := b.Snapshot(); s.MaxInflightBytes != c.want || s.BudgetSource != source || s.CeilingBytes != c.ceiling {
			t.Errorf("ceiling %d: budget %d from %s, want %d from %s", c.ceiling, s.MaxInflightBytes, s.BudgetSource, c.want, source)
		}
	}
	for _, source := range []pressure.Source{pressure.SourceGOMEMLIMIT, pressure.SourceCgroup, pressure.SourcePhysical} {
		s := derive(DefaultConfig(), pressure.Ceiling{Bytes: gib, Source: source}, 0, pressure.Normal)
		if s.source != source {
			t.Errorf("source %s, want %s", s.source, source)
		}
	}
}

// A budget that is set passes the same bounds.
func TestBudgetOverride(t *testing.T) {
	for _, c := range []struct{ set, want int64 }{
		{1, 8 * mib}, {8*mib - 1, 8 * mib}, {8 * mib, 8 * mib}, {70 * mib, 70 * mib}, {2 * gib, 2 * gib}, {2*gib + 1, 2 * gib}, {math.MaxInt64, 2 * gib},
	} {
		for _, ceiling := range []int64{0, 512 * mib, 64 * gib} {
			b := budgetOn(t, newMachine(ceiling), func(f *Config) { f.MaxInflightBytes = gate.Size(c.set) })
			if s := b.Snapshot(); s.MaxInflightBytes != c.want || s.BudgetSource != "override" {
				t.Errorf("set to %d: budget %d from %s, want %d from override", c.set, s.MaxInflightBytes, s.BudgetSource, c.want)
			}
		}
	}
}

// New finds the machine's own ceiling.
func TestNewOnThisMachine(t *testing.T) {
	b, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := b.Snapshot()
	if s.MaxInflightBytes < 8*mib || s.MaxInflightBytes > 2*gib {
		t.Errorf("budget of %d", s.MaxInflightBytes)
	}
	if c := pressure.CurrentCeiling(); c.Bytes > 0 && s.BudgetSource != string(c.Source) {
		t.Errorf("source %s, want %s", s.BudgetSource, c.Source)
	}
	b.Refresh()
	if s := b.Snapshot(); s.HeapLiveBytes < 0 {
		t.Errorf("heap of %d", s.HeapLiveBytes)
	}
}

// What the caller does with its Config afterwards is its own affair.
func TestConfigIsCopied(t *testing.T) {
	c := DefaultConfig()
	c.Exempt, c.Factors = []string{"/livez"}, []Factor{{Route: "/x", Times: 2}}
	m := newMachine(gib)
	b, err := open(c, m.readCeiling, m.heap.Load)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c.Exempt[0], c.Factors[0] = "/api", Factor{Route: "/x", Times: 64}
	l, err := b.Acquire(t.Context(), gate.Request{Bytes: 100, Route: "/x", Path: "/api"})
	if err != nil {
		t.Fatal(err)
	}
	inflight(t, b, 200)
	l.Release()
	if err := b.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
	c.Factors[0].Times = 1
	l, err = b.Acquire(t.Context(), gate.Request{Bytes: 100, Route: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	inflight(t, b, 6400)
	l.Release()
}

func TestReleaseAtText(t *testing.T) {
	for _, r := range []ReleaseAt{FirstByte, Return} {
		text, err := r.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back ReleaseAt
		if err := back.UnmarshalText(text); err != nil || back != r {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
	r := Return
	for _, bad := range []string{"", "FirstByte", "first-byte", " return", strings.Repeat("x", 1000)} {
		if err := r.UnmarshalText([]byte(bad)); err == nil || r != Return || len(err.Error()) > 200 {
			t.Errorf("%.20q: %v, now %v", bad, err, r)
		}
	}
	if s := ReleaseAt(9).String(); s != "release_at(9)" {
		t.Error(s)
	}
}
