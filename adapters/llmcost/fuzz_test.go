package llmcost

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/lanes"
	"github.com/stretchr/testify/assert"
)

// check compares Features with the model, and what must hold for every body.
func check(t *testing.T, body []byte) {
	t.Helper()
	before := string(body)
	f, err := Features(body)
	if string(body) != before {
		t.Fatalf("%q was changed", before)
	}
	if f.Bytes != int64(len(body)) || f.Tokens < 0 || f.Messages < 1 || f.Tools < 0 || f.N < 0 {
		t.Fatalf("%q: %+v", body, f)
	}
	price := Price(body)
	if price != lanes.Price(f) || price < 1 || price > lanes.MaxPrice || err != nil && price != lanes.MaxPrice {
		t.Fatalf("%q: price %d, %+v, %v", body, price, f, err)
	}
	if want, ok := modelFeatures(body); modelled(body) && (ok != (err == nil) || ok && f != want) {
		t.Fatalf("%q:\nhave %+v, %v\nwant %+v, %v", body, f, err, want, ok)
	}
}

func FuzzFeatures(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		f.Add([]byte(odd(r)))
	}
	f.Fuzz(check)
}

// Bodies made of the names and the values that matter, with what is wrong about them.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	valid := 0
	for range 10_000 {
		body := []byte(odd(r))
		check(t, body)
		if _, err := Features(body); err == nil {
			valid++
		}
	}
	assert.Greater(t, valid, 5_000, "few enough of them are broken")
	assert.Less(t, valid, 9_500)
}

var (
	oddNames = []string{
		"messages", "input", "contents", "system", "instructions", "system_instruction", "systemInstruction", "tools", "functions",
		"functionDeclarations", "function_declarations", "stream", "generationConfig", "generation_config", "max_tokens",
		"max_completion_tokens", "max_output_tokens", "maxOutputTokens", "n", "candidateCount", "candidate_count", "request", "N", "STREAM",
		"tool\u017f", "max_to\u212aens", `\u006e`, `m\u0061x_tokens`, "", "_n_", "n\u0000", "model", "functionDeclarationsX", "é", `\ud83d\ude00`, `\ud800`,
	}
	oddValues = []string{
		"null", "true", "false", `""`, `"x"`, `"12"`, `" 7 "`, `"1e3"`, `"-3"`, `"1_000"`, `"\u0034"`, `"NaN"`, `"-inf"`, "0", "1", "-1", "-0", "2.5", "4096", "1e3", "1e400",
		"-1e400", "9223372036854775807", "9223372036854775808", "9007199254740993", "1E+2", "-0.5", "1e19", "[]", "{}",
		"1e-400", "1e-99999999999999999999", "1e99999999999999999999", "1E+0003", "0.0e-5", "-0e5", "900719925474099e3",
		"1024.000000000000000000000000001", "9223372036854775806.5", "9223372036854775807.5", "123456789012345678901e-3",
		`"+5"`, `".5"`, `"5."`, `"00012.50"`, `"-"`, `"."`, `"1e"`, `"1e+"`, `"e5"`, `"+-5"`, `"1.2.3"`, `"1e5.5"`,
		"0." + strings.Repeat("1", 60), "1" + strings.Repeat("0", 70), "-1" + strings.Repeat("0", 70),
	}
)

const broken = "{}[]\",:\\ \x00\xff0e-."

// odd returns a body, most often a whole one.
func odd(r *rand.Rand) string {
	var b strings.Builder
	oddObject(&b, r, 4)
	s := b.String()
	if r.IntN(5) > 0 {
		return s
	}
	at := r.IntN(len(s) + 1)
	switch r.IntN(4) {
	case 0:
		return s[:at]
	case 1:
		return s + []string{" ", "\n", "{}", "x", ",", "null", "\x00"}[r.IntN(7)]
	case 2:
		return s[:at] + string(broken[r.IntN(len(broken))]) + s[at:]
	default:
		return s[at:]
	}
}

func oddValue(b *strings.Builder, r *rand.Rand, depth int) {
	switch k := r.IntN(4); {
	case k == 0 && depth > 0:
		oddObject(b, r, depth-1)
	case k == 1 && depth > 0:
		b.WriteByte('[')
		for i := range r.IntN(4) {
			if i > 0 {
				b.WriteByte(',')
			}
			oddValue(b, r, depth-1)
		}
		b.WriteByte(']')
	default:
		b.WriteString(oddValues[r.IntN(len(oddValues))])
	}
}

func oddObject(b *strings.Builder, r *rand.Rand, depth int) {
	b.WriteByte('{')
	for i := range r.IntN(6) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "%s\"%s\":", strings.Repeat(" ", r.IntN(2)), oddNames[r.IntN(len(oddNames))])
		oddValue(b, r, depth)
	}
	b.WriteByte('}')
}
