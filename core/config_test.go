package headgate_test

import (
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/core/pressure"
)

func TestDefaultConfig(t *testing.T) {
	c := headgate.DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(c.Admission, admission.DefaultConfig()) {
		t.Errorf("Admission = %+v, not its package's own defaults", c.Admission)
	}
	if !reflect.DeepEqual(c.Pressure, pressure.DefaultConfig()) {
		t.Errorf("pressure: %+v", c.Pressure)
	}
	if !reflect.DeepEqual(c.Inflight, inflight.DefaultConfig()) {
		t.Errorf("Inflight = %+v, not its package's own defaults", c.Inflight)
	}
	if c.Admission.Mode != gate.Enforce || c.Logger != nil {
		t.Errorf("mode %v, logger %v", c.Admission.Mode, c.Logger)
	}
}

// snake returns a Go name as it reads in YAML: HeapShedRatio is heap_shed_ratio.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name { // names are ASCII
		inWord := i > 0 && unicode.IsUpper(rune(name[i-1])) && (i+1 == len(name) || unicode.IsUpper(rune(name[i+1])))
		if i > 0 && unicode.IsUpper(r) && !inWord {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Every field, however deep, has its name in snake_case as YAML key.
func TestConfigKeys(t *testing.T) {
	var check func(path string, typ reflect.Type)
	check = func(path string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			want := snake(f.Name)
			switch f.Type { // code, not text
			case reflect.TypeFor[*slog.Logger](), reflect.TypeFor[*pressure.Monitor](), reflect.TypeFor[fs.FS]():
				want = "-"
			}
			if f.Type.Kind() == reflect.Func {
				want = "-"
			}
			if got := f.Tag.Get("yaml"); got != want {
				t.Errorf("%s.%s has the key %q, want %q", path, f.Name, got, want)
			}
			elem := f.Type
			if elem.Kind() == reflect.Slice || elem.Kind() == reflect.Map {
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct {
				check(path+"."+f.Name, elem)
			}
		}
	}
	check("Config", reflect.TypeFor[headgate.Config]())
}

func TestValidateNamesTheField(t *testing.T) {
	for want, spoil := range map[string]func(*headgate.Config){
		"admission: Mode is unset":            func(c *headgate.Config) { c.Admission.Mode = 0 },
		"admission: MaxInflightBytes is 0":    func(c *headgate.Config) { c.Admission.MaxInflightBytes = 0 },
		"admission: MaxWaiters is -3":         func(c *headgate.Config) { c.Admission.MaxWaiters = -3 },
		"admission: HeapShedRatio is 1.5":     func(c *headgate.Config) { c.Admission.HeapShedRatio = 1.5 },
		"admission: Exempt[1] is healthz":     func(c *headgate.Config) { c.Admission.Exempt = []string{"/a", "healthz"} },
		"inflight: MaxInflight is -1":         func(c *headgate.Config) { c.Inflight.MaxInflight = -1 },
		"pressure: Period is 0s":              func(c *headgate.Config) { c.Pressure.Period = 0 },
		"lanes: MinLimit is 0":                func(c *headgate.Config) { c.Lanes.MinLimit = 0 },
		"inflight: SlowWait is 0s":            func(c *headgate.Config) { c.Inflight.SlowWait = 0 },
		"admission: Factors[0].Times is -0.5": func(c *headgate.Config) { c.Admission.Factors = []admission.Factor{{Route: "/", Times: -0.5}} },
	} {
		c := headgate.DefaultConfig()
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Validate() = %v, want %s ...", err, want)
		}
		if h, err := headgate.Open(c); err == nil || h != nil || err.Error() != c.Validate().Error() {
			t.Errorf("Open() = %v, %v, want nil and Validate's error", h, err)
		}
	}
	if err := (headgate.Config{}).Validate(); err == nil {
		t.Error("the zero Config is valid")
	}
}

// env is an environment.
type env map[string]string

func (e env) get(name string) string { return e[name] }

// variables are all that ConfigFromEnv reads, each with a value and what it sets.
var variables = map[string]struct {
	value string
	read  func(headgate.Config) any
	want  any
}{
	"HEADGATE_MAX_INFLIGHT_BYTES":           {"64MiB", func(c headgate.Config) any { return c.Admission.MaxInflightBytes }, gate.Size(64 << 20)},
	"HEADGATE_MAX_HEAVY_IN_FLIGHT":          {"7", func(c headgate.Config) any { return c.Admission.MaxHeavyInFlight }, 7},
	"HEADGATE_ADMISSION_QUEUE_TIMEOUT":      {"1m30s", func(c headgate.Config) any { return c.Admission.QueueTimeout }, 90 * time.Second},
	"HEADGATE_ADMISSION_MAX_QUEUED_BYTES":   {"1000", func(c headgate.Config) any { return c.Admission.MaxQueuedBytes }, gate.Size(1000)},
	"HEADGATE_HEAVY_BYTES":                  {"300KB", func(c headgate.Config) any { return c.Admission.HeavyBytes }, gate.Size(300_000)},
	"HEADGATE_HARD_MAX_BODY_BYTES":          {"2GiB", func(c headgate.Config) any { return c.Admission.HardMaxBodyBytes }, gate.Size(2 << 30)},
	"HEADGATE_LANES_MODE":                   {"enforce", func(c headgate.Config) any { return c.Lanes.Mode }, gate.Enforce},
	"HEADGATE_VIRTUAL_LANES":                {"true", func(c headgate.Config) any { return c.Lanes.VirtualLanes }, true},
	"HEADGATE_LANES_ALGORITHM":              {"aimd", func(c headgate.Config) any { return c.Lanes.Algorithm }, lanes.AIMD},
	"HEADGATE_LANES_MIN_LIMIT":              {"9", func(c headgate.Config) any { return c.Lanes.MinLimit }, 9},
	"HEADGATE_LANES_INITIAL_LIMIT":          {"65", func(c headgate.Config) any { return c.Lanes.InitialLimit }, 65},
	"HEADGATE_LANES_MAX_LIMIT":              {"999", func(c headgate.Config) any { return c.Lanes.MaxLimit }, 999},
	"HEADGATE_LANES_MAX_QUEUE_COUNT":        {"7", func(c headgate.Config) any { return c.Lanes.MaxQueueCount }, 7},
	"HEADGATE_LANES_MAX_QUEUE_COST":         {"70", func(c headgate.Config) any { return c.Lanes.MaxQueueCost }, 70},
	"HEADGATE_LANES_MAX_WAIT":               {"2s", func(c headgate.Config) any { return c.Lanes.MaxWait }, 2 * time.Second},
	"HEADGATE_LANES_MAX_LANES":              {"10", func(c headgate.Config) any { return c.Lanes.MaxLanes }, 10},
	"HEADGATE_MAX_INFLIGHT":                 {"6", func(c headgate.Config) any { return c.Inflight.MaxInflight }, 6},
	"HEADGATE_INFLIGHT_QUEUE_TIMEOUT":       {"2m", func(c headgate.Config) any { return c.Inflight.QueueTimeout }, 2 * time.Minute},
	"HEADGATE_INFLIGHT_INTERACTIVE_RESERVE": {"2", func(c headgate.Config) any { return c.Inflight.InteractiveReserve }, 2},
	"HEADGATE_HEALTHY_HEADROOM":             {"0", func(c headgate.Config) any { return c.Admission.HealthyHeadroom }, 0},
	"HEADGATE_HEAP_SHED_RATIO":              {"0.5", func(c headgate.Config) any { return c.Admission.HeapShedRatio }, 0.5},
}

// Each variable sets its own field and no other.
func TestConfigFromEnv(t *testing.T) {
	base := headgate.DefaultConfig()
	if c, err := headgate.ConfigFromEnv(base, env{}.get); err != nil || !reflect.DeepEqual(c, base) {
		t.Errorf("an empty environment: %+v, %v", c, err)
	}
	all := env{}
	for name, v := range variables {
		all[name] = v.value
		c, err := headgate.ConfigFromEnv(base, env{name: v.value}.get)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for other, o := range variables {
			want := o.read(base)
			if other == name {
				want = o.want
			}
			if got := o.read(c); got != want {
				t.Errorf("%s=%s: the field of %s is %v, want %v", name, v.value, other, got, want)
			}
		}
	}
	c, err := headgate.ConfigFromEnv(base, all.get)
	for name, v := range variables {
		if got := v.read(c); err != nil || got != v.want {
			t.Errorf("all at once: %s sets %v (%v), want %v", name, got, err, v.want)
		}
	}
}

// It asks for these names and no others.
func TestConfigFromEnvNames(t *testing.T) {
	asked := map[string]bool{}
	_, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), func(name string) string { asked[name] = true; return "" })
	got, want := slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(variables))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("asks for %v (%v), want %v", got, err, want)
	}
}

func TestConfigFromEnvAuto(t *testing.T) {
	e := env{"HEADGATE_MAX_INFLIGHT_BYTES": "-1", "HEADGATE_MAX_HEAVY_IN_FLIGHT": "-1"}
	base := headgate.DefaultConfig()
	base.Admission.MaxInflightBytes, base.Admission.MaxHeavyInFlight = 1<<30, 9
	c, err := headgate.ConfigFromEnv(base, e.get)
	if err != nil || c.Admission.MaxInflightBytes != admission.Auto || c.Admission.MaxHeavyInFlight != admission.Auto {
		t.Errorf("-1 reads %v and %v, %v", c.Admission.MaxInflightBytes, c.Admission.MaxHeavyInFlight, err)
	}
}

// Fields that bound each other can be set together, whatever comes first; where one is
// wrong its variable is named.
func TestConfigFromEnvTogether(t *testing.T) {
	e := env{"HEADGATE_LANES_MIN_LIMIT": "2000", "HEADGATE_LANES_INITIAL_LIMIT": "3000", "HEADGATE_LANES_MAX_LIMIT": "4000"}
	c, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), e.get)
	if err != nil || c.Lanes.MinLimit != 2000 || c.Lanes.InitialLimit != 3000 || c.Lanes.MaxLimit != 4000 {
		t.Errorf("%+v, %v", c.Lanes, err)
	}
	e["HEADGATE_LANES_MAX_WAIT"] = "-1s"
	if _, err = headgate.ConfigFromEnv(headgate.DefaultConfig(), e.get); err == nil || !strings.HasPrefix(err.Error(), "HEADGATE_LANES_MAX_WAIT is") {
		t.Errorf("%v", err)
	}
	e["HEADGATE_MAX_INFLIGHT"] = "-1"
	if _, err = headgate.ConfigFromEnv(headgate.DefaultConfig(), e.get); err == nil {
		t.Error("two that are wrong are taken")
	}
}

// A bad value is an error that names variable and value, whatever else is set, and
// nothing of the environment is taken.
func TestConfigFromEnvErrors(t *testing.T) {
	base := headgate.DefaultConfig()
	base.Admission.Exempt = []string{"/healthz"}
	for _, c := range []struct{ name, value, want string }{
		{"HEADGATE_MAX_INFLIGHT_BYTES", "10MB ", "whole number of bytes"},
		{"HEADGATE_MAX_INFLIGHT_BYTES", "1.5MiB", "whole number of bytes"},
		{"HEADGATE_MAX_INFLIGHT_BYTES", "99999999999999999999", "64 bits"},
		{"HEADGATE_MAX_INFLIGHT_BYTES", "0", "MaxInflightBytes is 0"},
		{"HEADGATE_MAX_INFLIGHT_BYTES", "-2", "MaxInflightBytes is -2"},
		{"HEADGATE_MAX_HEAVY_IN_FLIGHT", "many", "whole number"},
		{"HEADGATE_MAX_HEAVY_IN_FLIGHT", "1e2", "whole number"},
		{"HEADGATE_MAX_HEAVY_IN_FLIGHT", "0", "MaxHeavyInFlight is 0"},
		{"HEADGATE_ADMISSION_QUEUE_TIMEOUT", "15", "duration"},
		{"HEADGATE_ADMISSION_QUEUE_TIMEOUT", "-1s", "QueueTimeout is -1"},
		{"HEADGATE_ADMISSION_MAX_QUEUED_BYTES", "-5", "MaxQueuedBytes is -5"},
		{"HEADGATE_HEAVY_BYTES", "0", "HeavyBytes is 0"},
		{"HEADGATE_HARD_MAX_BODY_BYTES", "null", "whole number of bytes"},
		{"HEADGATE_HEALTHY_HEADROOM", "-2", "HealthyHeadroom is -2"},
		{"HEADGATE_LANES_MODE", "on", "want off, shadow or enforce"},
		{"HEADGATE_LANES_ALGORITHM", "vegas", "want gradient, aimd or fixed"},
		{"HEADGATE_VIRTUAL_LANES", "maybe", "true or false"},
		{"HEADGATE_LANES_MIN_LIMIT", "0", "MinLimit is 0"},
		{"HEADGATE_LANES_MIN_LIMIT", "66", "InitialLimit is 65"},
		{"HEADGATE_LANES_MAX_WAIT", "-1s", "MaxWait is -1s"},
		{"HEADGATE_MAX_INFLIGHT", "-1", "MaxInflight is -1"},
		{"HEADGATE_MAX_INFLIGHT", "six", "want a whole number"},
		{"HEADGATE_INFLIGHT_QUEUE_TIMEOUT", "-1s", "QueueTimeout is -1s"},
		{"HEADGATE_INFLIGHT_INTERACTIVE_RESERVE", "-1", "InteractiveReserve is -1"},
		{"HEADGATE_HEAP_SHED_RATIO", "NaN", "HeapShedRatio is NaN"},
		{"HEADGATE_HEAP_SHED_RATIO", "1e400", "number"},
		{"HEADGATE_HEAP_SHED_RATIO", "0", "HeapShedRatio is 0"},
		{"HEADGATE_HEAP_SHED_RATIO", "75%", "number"},
	} {
		e := env{c.name: c.value}
		for name, v := range variables {
			if name != c.name {
				e[name] = v.value
			}
		}
		got, err := headgate.ConfigFromEnv(base, e.get)
		prefix := c.name + ` is "` + c.value + `": `
		if err == nil || !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s... %s", err, prefix, c.want)
		}
		if !reflect.DeepEqual(got, base) {
			t.Errorf("%s=%s: the config has changed: %+v", c.name, c.value, got)
		}
	}
}

// A long value is not repeated whole.
func TestConfigFromEnvErrorsAreShort(t *testing.T) {
	for name := range variables {
		_, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), env{name: strings.Repeat("x\n", 1<<16)}.get)
		if err == nil || !strings.HasPrefix(err.Error(), name) || len(err.Error()) > 250 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %.300v", name, err)
		}
	}
}

// A config that was wrong before is not blamed on a variable.
func TestConfigFromEnvOfABadConfig(t *testing.T) {
	bad := headgate.DefaultConfig()
	bad.Admission.BodyIdle = 0
	c, err := headgate.ConfigFromEnv(bad, env{"HEADGATE_HEAVY_BYTES": "1MiB"}.get)
	if err == nil || err.Error() != bad.Validate().Error() || !reflect.DeepEqual(c, bad) {
		t.Errorf("error %v, want Validate's: %v", err, bad.Validate())
	}
}

func FuzzConfigFromEnv(f *testing.F) {
	for _, v := range variables {
		f.Add(v.value)
	}
	f.Add("-1")
	f.Add("9223372036854775807TiB")
	base := headgate.DefaultConfig()
	f.Fuzz(func(t *testing.T, value string) {
		for name := range variables {
			c, err := headgate.ConfigFromEnv(base, env{name: value}.get)
			if err == nil {
				if err := c.Validate(); err != nil {
					t.Fatalf("%s=%q gives a config that is out of range: %v", name, value, err)
				}
				continue
			}
			if !reflect.DeepEqual(c, base) || !strings.HasPrefix(err.Error(), name+" is ") {
				t.Fatalf("%s=%q: %+v, %v", name, value, c, err)
			}
		}
	})
}
