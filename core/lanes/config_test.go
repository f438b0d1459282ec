package lanes

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// J11: every number at 0, below it, and too large, is what its comment says: an error that
// names the field, or zero.
func TestJ11Zeros(t *testing.T) {
	for _, f := range []struct {
		field  string
		set    func(*Config, int)
		zeroOK bool
	}{
		{"MinLimit", func(c *Config, n int) { c.MinLimit = n }, false},
		{"InitialLimit", func(c *Config, n int) { c.InitialLimit = n }, false},
		{"MaxLimit", func(c *Config, n int) { c.MaxLimit = n }, false},
		{"MaxQueueCount", func(c *Config, n int) { c.MaxQueueCount = n }, true},
		{"MaxQueueCost", func(c *Config, n int) { c.MaxQueueCost = n }, true},
		{"MaxLanes", func(c *Config, n int) { c.MaxLanes = n }, false},
		{"MaxExempt", func(c *Config, n int) { c.MaxExempt = n }, false},
		{"Window", func(c *Config, n int) { c.Window = time.Duration(n) }, false},
		{"MaxWait", func(c *Config, n int) { c.MaxWait = time.Duration(n) }, true},
		{"Mode", func(c *Config, n int) { c.Mode = gate.Mode(n) }, false},
		{"Algorithm", func(c *Config, n int) { c.Algorithm = Algorithm(n) }, false},
	} {
		for _, n := range []int{0, -1, math.MaxInt32} {
			c := DefaultConfig()
			f.set(&c, n)
			err := c.Validate()
			ok := n == 0 && f.zeroOK || n > 0 && (f.field == "MaxWait" || f.field == "Window")
			switch {
			case ok && err != nil:
				t.Errorf("%s %d: %v", f.field, n, err)
			case !ok && (err == nil || !strings.Contains(err.Error(), f.field+" is ") || !strings.Contains(err.Error(), "DefaultConfig")):
				t.Errorf("%s %d: error %v, want one that names it", f.field, n, err)
			}
			if l, err2 := New(c); (err2 == nil) != ok {
				t.Errorf("%s %d: New says %v", f.field, n, err2)
			} else if l != nil {
				l.Close()
			}
		}
	}
	for field, change := range map[string]func(*Config){
		"InitialLimit": func(c *Config) { c.InitialLimit = 2000 },
		"MinLimit":     func(c *Config) { c.MinLimit, c.InitialLimit = 3000, 3000 },
		"Exempt[1]":    func(c *Config) { c.Exempt = []string{"/a", "b"} },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A bound of 0 lets nobody wait; none of them means that there is no bound.
func TestZeroLetsNobodyWait(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"MaxQueueCount": func(c *Config) { c.MaxQueueCount = 0 },
		"MaxQueueCost":  func(c *Config) { c.MaxQueueCost = 0 },
		"MaxWait":       func(c *Config) { c.MaxWait = 0 },
	} {
		for _, lanes := range []bool{false, true} {
			l := enforcing(t, func(c *Config) { limited(1)(c); c.VirtualLanes = lanes; change(c) })
			holder := take(t, l, "a", 1)
			for range 3 {
				reject(t, l, gate.Request{Flow: "a", Cost: 1})
			}
			if s := l.Snapshot(); s.Queued != 0 || s.Sheds != 3 {
				t.Errorf("%s 0, lanes %v: %d queued, %d shed", name, lanes, s.Queued, s.Sheds)
			}
			holder.Release()
			take(t, l, "a", 1).Release()
		}
	}
}

// Every field that can be in a file has a name there.
func TestConfigTags(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag := f.Tag.Get("yaml")
		if k := f.Type.Kind(); k == reflect.Func || k == reflect.Pointer {
			if tag != "-" {
				t.Errorf("%s: tag %q", f.Name, tag)
			}
			continue
		}
		if snake(f.Name) != tag {
			t.Errorf("%s: tag %q, want %q", f.Name, tag, snake(f.Name))
		}
	}
}

func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// An algorithm reads as it is written, and nothing else reads.
func TestAlgorithmText(t *testing.T) {
	for _, a := range []Algorithm{Gradient, AIMD, Fixed} {
		text, err := a.MarshalText()
		var back Algorithm
		if err != nil || back.UnmarshalText(text) != nil || back != a {
			t.Errorf("%v: %q, %v, %v", a, text, err, back)
		}
	}
	a := AIMD
	for _, bad := range []string{"", "unset", "Gradient", "gradient ", strings.Repeat("x", 1000)} {
		if err := a.UnmarshalText([]byte(bad)); err == nil || a != AIMD || len(err.Error()) > 120 {
			t.Errorf("%.40q: %v, %v", bad, err, a)
		}
	}
	if _, err := Algorithm(0).MarshalText(); err == nil || Algorithm(0).String() != "unset" || Algorithm(9).String() != "algorithm(9)" {
		t.Error("an algorithm that does not exist has a name")
	}
}

// Whatever an algorithm is read from: it is one of the three or stays what it was.
func FuzzAlgorithm(f *testing.F) {
	f.Add("gradient")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		a := Fixed
		if err := a.UnmarshalText([]byte(s)); (err == nil) != (a.String() == s) && s != "fixed" || !a.valid() {
			t.Fatalf("%q: %v, %v", s, a, err)
		}
	})
}
