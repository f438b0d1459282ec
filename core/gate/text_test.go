package gate_test

import (
	"encoding"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// word is a type that is one of a few names.
type word interface {
	encoding.TextMarshaler
	String() string
}

// words maps each type's name to the values that have a name; parse reads b
// into a fresh value that was start before.
var words = []struct {
	name    string
	values  map[string]word
	unnamed []word // MarshalText fails, String says so
	parse   func(start uint8, b []byte) (word, error)
}{
	{
		"class",
		map[string]word{"interactive": gate.Interactive, "default": gate.Default, "bulk": gate.Bulk},
		[]word{gate.Class(4), gate.Class(255)},
		func(start uint8, b []byte) (word, error) {
			v := gate.Class(start)
			err := v.UnmarshalText(b)
			return v, err
		},
	},
	{
		"mode",
		map[string]word{"off": gate.Off, "shadow": gate.Shadow, "enforce": gate.Enforce},
		[]word{gate.Mode(0), gate.Mode(4), gate.Mode(255)},
		func(start uint8, b []byte) (word, error) {
			v := gate.Mode(start)
			err := v.UnmarshalText(b)
			return v, err
		},
	},
	{
		"format",
		map[string]word{"problem": gate.Problem, "openai": gate.OpenAI, "anthropic": gate.Anthropic},
		[]word{gate.Format(3), gate.Format(255)},
		func(start uint8, b []byte) (word, error) {
			v := gate.Format(start)
			err := v.UnmarshalText(b)
			return v, err
		},
	},
}

func TestWordsRoundTrip(t *testing.T) {
	for _, w := range words {
		for name, v := range w.values {
			if got := v.String(); got != name {
				t.Errorf("%s %v prints %q", w.name, v, got)
			}
			b, err := v.MarshalText()
			if err != nil || string(b) != name {
				t.Errorf("%s %s: MarshalText = %q, %v", w.name, name, b, err)
			}
			if got, err := w.parse(0, b); err != nil || got != v {
				t.Errorf("%s: %q reads %v, %v", w.name, b, got, err)
			}
		}
		for _, v := range w.unnamed {
			if b, err := v.MarshalText(); err == nil || b != nil {
				t.Errorf("%s %v: MarshalText = %q, want an error", w.name, v, b)
			} else if !strings.Contains(err.Error(), w.name) {
				t.Errorf("%q does not name the %s", err, w.name)
			}
			if s := v.String(); s != "unset" && !strings.HasPrefix(s, w.name+"(") {
				t.Errorf("%s prints %q", w.name, s)
			}
		}
		for _, bad := range []string{"", " ", "Bulk", "BULK", "bulk ", " off", "Problem", "unset", "class(4)", "0", "1", "b\x00", "\xff",
			strings.Repeat("x", 1<<16)} {
			checkRefused(t, w.name, bad, w.parse)
		}
	}
}

// checkRefused holds that a bad name leaves the value alone, and that its error
// is one short line that says what would do.
func checkRefused(t *testing.T, name, text string, parse func(uint8, []byte) (word, error)) {
	t.Helper()
	got, err := parse(2, []byte(text))
	if err == nil {
		t.Errorf("%s %.40q reads %v, want an error", name, text, got)
		return
	}
	kept, err2 := parse(2, []byte(text))
	if old, _ := parse(2, nil); got != old || kept != old || err2 == nil {
		t.Errorf("%s %.40q changed the value to %v", name, text, got)
	}
	msg := err.Error()
	if !strings.HasPrefix(msg, name+" ") || !strings.Contains(msg, "want ") || len(msg) > 250 || strings.ContainsAny(msg, "\n\x00") {
		t.Errorf("%s %.40q: error %q", name, text, msg)
	}
}

func TestParseClass(t *testing.T) {
	for c := gate.Interactive; c <= gate.Bulk; c++ {
		if got, err := gate.ParseClass(c.String()); err != nil || got != c {
			t.Errorf("ParseClass(%q) = %v, %v", c, got, err)
		}
	}
	if got, err := gate.ParseClass("urgent"); err == nil || got != 0 {
		t.Errorf("ParseClass(urgent) = %v, %v, want 0 and an error", got, err)
	}
	if gate.Interactive >= gate.Default || gate.Default >= gate.Bulk {
		t.Error("the classes are not in the order of their urgency")
	}
}

func TestZeroValues(t *testing.T) {
	var c gate.Class
	if b, err := c.MarshalText(); err != nil || string(b) != "default" || !c.Valid() {
		t.Errorf("zero class: %q, %v", b, err)
	}
	var m gate.Mode
	if m.Valid() || m.String() != "unset" {
		t.Errorf("zero mode: valid %t, %q", m.Valid(), m)
	}
	var f gate.Format
	if f != gate.Problem {
		t.Errorf("zero format: %v", f)
	}
	for i := range 256 {
		if got := gate.Class(i).Valid(); got != (i <= 3) {
			t.Errorf("Class(%d).Valid() = %t", i, got)
		}
		if got := gate.Mode(i).Valid(); got != (i >= 1 && i <= 3) {
			t.Errorf("Mode(%d).Valid() = %t", i, got)
		}
	}
}

// What a config file or a snapshot holds.
func TestWordsInJSON(t *testing.T) {
	type conf struct {
		Class  gate.Class
		Mode   gate.Mode
		Format gate.Format
		Size   gate.Size
		Max    map[gate.Class]int
	}
	in := conf{gate.Bulk, gate.Shadow, gate.Anthropic, 3 << 20, map[gate.Class]int{gate.Interactive: 2}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	const golden = `{"Class":"bulk","Mode":"shadow","Format":"anthropic","Size":"3MiB","Max":{"interactive":2}}`
	if string(b) != golden {
		t.Errorf("got  %s\nwant %s", b, golden)
	}
	var out conf
	if err := json.Unmarshal(b, &out); err != nil || out.Class != in.Class || out.Mode != in.Mode ||
		out.Format != in.Format || out.Size != in.Size || out.Max[gate.Interactive] != 2 {
		t.Errorf("read back %+v, %v", out, err)
	}
}

func FuzzWords(f *testing.F) {
	for _, w := range words {
		for name := range w.values {
			f.Add([]byte(name))
		}
	}
	f.Add([]byte("bulk\n"))
	f.Add([]byte(strings.Repeat("é", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, w := range words {
			if known, ok := w.values[string(b)]; ok {
				if got, err := w.parse(0, b); err != nil || got != known {
					t.Errorf("%s %q reads %v, %v", w.name, b, got, err)
				}
				continue
			}
			checkRefused(t, w.name, string(b), w.parse)
		}
	})
}
