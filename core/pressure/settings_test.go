package pressure

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaultConfig(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	ratio := Thresholds{High: 0.85, Critical: 0.92, Recovered: 0.75}
	want := Config{
		Period: time.Second, LiveHeap: ratio, WorkingSet: ratio, MemoryHigh: ratio, PSI: Thresholds{High: 30, Critical: 60, Recovered: 15},
		GCShare: Thresholds{High: 0.25, Critical: 0.4, Recovered: 0.1}, OOMHold: 10 * time.Second, Collect: true,
		CollectInterval: 30 * time.Second, NotReadyAfter: time.Minute,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// B23: a config that cannot work is refused, and the error says which field.
func TestB23Validate(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"Period", func(c *Config) { c.Period = 0 }},
		{"Period", func(c *Config) { c.Period = -time.Second }},
		{"Period", func(c *Config) { c.Period = 9 * time.Millisecond }},
		{"Period", func(c *Config) { c.Period = time.Minute + 1 }},
		{"LiveHeap.High", func(c *Config) { c.LiveHeap = Thresholds{} }},
		{"LiveHeap.Recovered", func(c *Config) { c.LiveHeap.Recovered = -0.01 }},
		{"LiveHeap.Recovered", func(c *Config) { c.LiveHeap.Recovered = math.NaN() }},
		{"LiveHeap.High", func(c *Config) { c.LiveHeap.High = c.LiveHeap.Recovered }},
		{"WorkingSet.High", func(c *Config) { c.WorkingSet.High = math.NaN() }},
		{"WorkingSet.Critical", func(c *Config) { c.WorkingSet.Critical = c.WorkingSet.High }},
		{"WorkingSet.Critical", func(c *Config) { c.WorkingSet.Critical = 1.01 }},
		{"MemoryHigh.Critical", func(c *Config) { c.MemoryHigh.Critical = math.Inf(1) }},
		{"PSI.High", func(c *Config) { c.PSI.High = 14 }},
		{"PSI.Critical", func(c *Config) { c.PSI.Critical = 100.5 }},
		{"GCShare.Critical", func(c *Config) { c.GCShare.Critical = math.NaN() }},
		{"GCShare.Critical", func(c *Config) { c.GCShare.Critical = 40 }},
		{"OOMHold", func(c *Config) { c.OOMHold = -1 }},
		{"OOMHold", func(c *Config) { c.OOMHold = 25 * time.Hour }},
		{"CollectInterval", func(c *Config) { c.CollectInterval = 0 }},
		{"CollectInterval", func(c *Config) { c.CollectInterval = c.Period - 1 }},
		{"CollectInterval", func(c *Config) { c.CollectInterval = math.MaxInt64 }},
		{"NotReadyAfter", func(c *Config) { c.NotReadyAfter = -1 }},
	} {
		config := DefaultConfig()
		c.change(&config)
		m, err := New(config)
		if err == nil || m != nil {
			t.Errorf("%s: %v, %v", c.field, m, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), "pressure: "+c.field+" is ") || !strings.Contains(err.Error(), "DefaultConfig") {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	for name, change := range map[string]func(*Config){
		"recovered at 0":     func(c *Config) { c.PSI.Recovered = 0 },
		"off needs no order": func(c *Config) { c.PSI = Thresholds{Off: true} },
		"zero that counts":   func(c *Config) { c.OOMHold, c.NotReadyAfter = 0, 0 },
		"up to the end":      func(c *Config) { c.PSI.Critical, c.LiveHeap.Critical = 100, 1 },
	} {
		config := DefaultConfig()
		change(&config)
		if err := config.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Period") {
		t.Errorf("the zero Config: %v", err)
	}
}

func TestConfigYAMLNames(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Thresholds]()} {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if tag := f.Tag.Get("yaml"); tag == "" || tag != "-" && tag != strings.ToLower(tag) {
				t.Errorf("%s.%s: yaml tag %q", typ, f.Name, tag)
			}
		}
	}
}

func TestSeverityText(t *testing.T) {
	for _, s := range []Severity{Normal, High, Critical} {
		raw, err := json.Marshal(s)
		var back Severity
		if err != nil || json.Unmarshal(raw, &back) != nil || back != s {
			t.Errorf("%v: %s, %v, back %v", s, raw, err, back)
		}
	}
	s := High
	if err := s.UnmarshalText([]byte("severe")); err == nil || s != High {
		t.Errorf("%v, %v", s, err)
	}
	if got := Severity(9).String(); got != "severity(9)" {
		t.Error(got)
	}
	if len(signalNames) != int(signals) || signal(noSignal).String() != "" || signals.String() != "" {
		t.Error("the names of the signals")
	}
}
