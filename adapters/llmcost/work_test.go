package llmcost

import (
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/lanes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// filled is a body of about n bytes: as many times unit as fit between begin and end.
func filled(begin, unit, end string, n int) []byte {
	return []byte(begin + strings.Repeat(unit, max(0, n-len(begin)-len(end))/len(unit)) + end)
}

// hostile are bodies that are all structure, by what they are made of.
var hostile = map[string]func(n int) []byte{
	"arrays, open":      func(n int) []byte { return filled("", "[", "", n) },
	"objects, open":     func(n int) []byte { return filled("", `{"a":`, "", n) },
	"arrays, nested":    func(n int) []byte { return append(filled("", "[", "", n/2), filled("", "]", "", n/2)...) },
	"messages":          func(n int) []byte { return filled(`{"messages":[{}`, ",{}", "]}", n) },
	"messages, open":    func(n int) []byte { return filled(`{"messages":[{}`, ",{}", "", n) },
	"messages, nested":  func(n int) []byte { return filled(`{"messages":`, "[", "", n) },
	"numbers":           func(n int) []byte { return filled(`{"input":[1`, ",1", "]}", n) },
	"keys":              func(n int) []byte { return filled(`{"":0`, `,"":0`, "}", n) },
	"numbers of tokens": func(n int) []byte { return filled(`{"n":0`, `,"n":9`, "}", n) },
	"tools":             func(n int) []byte { return filled(`{"tools":[0`, `,{"functionDeclarations":[{}]}`, "]}", n) },
	"wrappers":          func(n int) []byte { return filled(`{"request":{}`, `,"request":{}`, "}", n) },
	"settings":          func(n int) []byte { return filled(`{"n":0`, `,"generationConfig":{"n":1}`, "}", n) },
	"trailing arrays":   func(n int) []byte { return filled("{}", "[", "", n) },
}

// A hostile body is left after a fixed number of values, whatever its size, and costs the
// most there is. Without the limits 15 MiB of these would be millions of values.
func TestHostileBodies(t *testing.T) {
	for name, body := range hostile {
		var seen []int
		for _, n := range []int{1 * mib, 4 * mib, 15 * mib} {
			b := body(n)
			require.InDelta(t, n, len(b), 100)
			var s scan
			err := s.read(b)
			seen = append(seen, s.values)
			assert.LessOrEqual(t, s.values, maxValues, name)
			assert.LessOrEqual(t, allocations(b), 6.0, name)
			_, same := Features(b)
			assert.Equal(t, err, same, name)
			assert.EqualValues(t, lanes.MaxPrice, Price(b), name)
			if name == "trailing arrays" {
				assert.Equal(t, ErrNotJSON, err)
			} else {
				assert.ErrorIs(t, err, ErrTooComplex, name)
			}
		}
		assert.Equal(t, []int{seen[0], seen[0], seen[0]}, seen, "%s: the work grows with the body", name)
		t.Logf("%s: %d values", name, seen)
	}
}

// allocations is how many there are for one look at a body.
func allocations(body []byte) float64 {
	return testing.AllocsPerRun(1, func() { _, _ = Features(body) })
}

// Keys written with escapes are copied, one by one: as many as there may be values.
func TestEscapedKeys(t *testing.T) {
	keys := filled(`{"\n":0`, `,"\n":0`, "}", 4*mib)
	assert.LessOrEqual(t, allocations(keys), maxValues+6.0)
	long := filled(`{"\n`, "x", `":0}`, 4*mib)
	assert.LessOrEqual(t, allocations(long), 100.0)
	_, err := Features(long)
	require.NoError(t, err)
}

// A conversation costs one allocation, however long it is.
func TestAllocations(t *testing.T) {
	for name, body := range bodies {
		assert.LessOrEqual(t, allocations([]byte(body)), 1.0, name)
	}
	assert.LessOrEqual(t, allocations(filled(`{"max_tokens":"12","messages":[{}`, `,{"role":"user","content":"\n\u00e9"}`, "]}", mib)), 1.0)
	assert.Zero(t, allocations(nil))
	assert.Zero(t, allocations(make([]byte, 16*mib)), "not looked at")
}

// The limits are where they are said to be.
func TestLimits(t *testing.T) {
	nested := func(n int, inner string) []byte {
		return []byte(strings.Repeat("[", n) + inner + strings.Repeat("]", n))
	}
	many := func(n int) []byte { return []byte("[0" + strings.Repeat(",0", n-2) + "]") } // with the array itself
	const longest = 994 * 16 << 10                                                       // 1 + 994 + 1 message + 1 answer + 2 = 999
	for _, test := range []struct {
		body []byte
		want error
	}{
		{nested(128, "0"), nil}, {nested(129, ""), errDepth}, {nested(127, `{"a":0}`), nil}, {nested(127, `{"a":{}}`), errDepth},
		{[]byte(`{"tools":[{"functionDeclarations":` + string(nested(125, "")) + `}]}`), nil},
		{[]byte(`{"tools":[{"functionDeclarations":` + string(nested(126, "")) + `}]}`), errDepth},
		{many(65_536), nil}, {many(65_537), errValues},
		{filled(`"`, "x", `"`, longest), nil}, {filled(`"`, "x", ``, longest), ErrNotJSON}, {filled(`"`, "x", ``, longest+1), nil},
	} {
		_, err := Features(test.body)
		assert.Equal(t, test.want, err, "%.60q, %d bytes", test.body, len(test.body))
	}
	f, err := Features(filled("", "[", "", 20*mib))
	require.NoError(t, err, "its length is price enough")
	assert.Equal(t, lanes.Features{Bytes: 20 * mib, Messages: 1}, f)
	assert.EqualValues(t, lanes.MaxPrice, lanes.Price(f))
	assert.EqualError(t, errDepth, "llmcost: the body is too complex: nested deeper than 128")
	assert.EqualError(t, errValues, "llmcost: the body is too complex: more than 65536 values")
}
