package gate_test

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

func parseSize(text string) (gate.Size, error) {
	s := gate.Size(-77) // what an error must leave alone
	err := s.UnmarshalText([]byte(text))
	return s, err
}

func TestSize(t *testing.T) {
	for _, c := range []struct {
		text  string
		bytes gate.Size
		print string
	}{
		{"0", 0, "0B"},
		{"-0", 0, "0B"},
		{"0GiB", 0, "0B"},
		{"1", 1, "1B"},
		{"+1B", 1, "1B"},
		{"1023", 1023, "1023B"},
		{"65536", 1 << 16, "64KiB"},
		{"64KiB", 1 << 16, "64KiB"},
		{"64MiB", 1 << 26, "64MiB"},
		{"1024MiB", 1 << 30, "1GiB"},
		{"1536MiB", 3 << 29, "1536MiB"},
		{"2GiB", 1 << 31, "2GiB"},
		{"8388607TiB", 8388607 << 40, "8388607TiB"},
		{"64KB", 64e3, "64000B"},
		{"64MB", 64e6, "62500KiB"},
		{"2GB", 2e9, "1953125KiB"},
		{"3TB", 3e12, "2929687500KiB"},
		{"-5MiB", -5 << 20, "-5MiB"},
		{"9223372036854775807", math.MaxInt64, "9223372036854775807B"},
		{"-9223372036854775808", math.MinInt64, "-8388608TiB"},
		{"-8388608TiB", math.MinInt64, "-8388608TiB"},
	} {
		got, err := parseSize(c.text)
		if err != nil || got != c.bytes {
			t.Errorf("%q reads %d, %v, want %d", c.text, int64(got), err, int64(c.bytes))
		}
		if s := c.bytes.String(); s != c.print {
			t.Errorf("%d prints %q, want %q", int64(c.bytes), s, c.print)
		}
		if b, err := c.bytes.MarshalText(); err != nil || string(b) != c.print {
			t.Errorf("%d marshals to %q, %v", int64(c.bytes), b, err)
		}
	}
}

func TestSizeRefuses(t *testing.T) {
	const syntax, overflow = "want a whole number", "does not fit in 64 bits"
	for text, why := range map[string]string{
		"": syntax, "B": syntax, "KiB": syntax, "1.5MiB": syntax, "1 MiB": syntax, " 1": syntax, "1\n": syntax,
		"1kib": syntax, "1kb": syntax, "1K": syntax, "1M": syntax, "1PiB": syntax, "1KiBB": syntax, "1MiBKiB": syntax,
		"0x10": syntax, "1_000": syntax, "1e3": syntax, "--1": syntax, "１": syntax, "inf": syntax,
		"9223372036854775808":       overflow,
		"-9223372036854775809":      overflow,
		"99999999999999999999999B":  overflow,
		"8388608TiB":                overflow,
		"-8388609TiB":               overflow,
		"9223372036854775807KB":     overflow,
		"-9223372036854775808KiB":   overflow,
		"9007199254740992KiB":       overflow,
		strings.Repeat("9", 100000): overflow,
	} {
		got, err := parseSize(text)
		if err == nil || got != -77 {
			t.Errorf("%.40q reads %d, %v, want an error and no change", text, int64(got), err)
			continue
		}
		msg := err.Error()
		if !strings.HasPrefix(msg, "size ") || !strings.Contains(msg, why) || len(msg) > 250 || strings.Contains(msg, "\n") {
			t.Errorf("%.40q: error %q, want one short line with %q", text, msg, why)
		}
	}
}

var sizeForm = regexp.MustCompile(`^([+-]?[0-9]+)(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$`)

// modelSize reads text in unbounded numbers.
func modelSize(text string) (gate.Size, bool) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, ok := new(big.Int).SetString(m[1], 10)
	if !ok {
		return 0, false
	}
	if u := strings.TrimSuffix(m[2], "B"); u != "" {
		base := big.NewInt(1000)
		if strings.HasSuffix(u, "i") {
			base = big.NewInt(1024)
		}
		power := big.NewInt(int64(strings.IndexByte("KMGT", u[0]) + 1))
		n.Mul(n, base.Exp(base, power, nil))
	}
	return gate.Size(n.Int64()), n.IsInt64()
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"65536", "64KiB", "2GB", "8388608TiB", "-8388608TiB", "1.5MiB", "9223372036854775807", "+7B", "1KiBB", ""} {
		f.Add(s, int64(len(s))<<40)
	}
	f.Add("0", int64(math.MinInt64))
	f.Add("0", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, text string, n int64) {
		if got, err := parseSize(gate.Size(n).String()); err != nil || got != gate.Size(n) {
			t.Errorf("%d prints %q, which reads %d, %v", n, gate.Size(n), int64(got), err)
		}
		if len(text) > 1000 {
			return // big.Int would take long, and long numbers are all alike
		}
		got, err := parseSize(text)
		want, ok := modelSize(text)
		if ok != (err == nil) || ok && got != want || !ok && got != -77 {
			t.Errorf("%q reads %d, %v, want %d, %t", text, int64(got), err, int64(want), ok)
		}
	})
}
