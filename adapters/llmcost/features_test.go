package llmcost

import (
	"math"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/lanes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One conversation in the shapes of the four APIs: a system prompt, a question, an answer
// and a question, two tools, at most 2000 tokens.
var bodies = map[string]string{
	"OpenAI chat": `{"model":"m","stream":true,"max_completion_tokens":2000,"n":1,
		"messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"Q"}]},{"role":"assistant","content":"A"},{"role":"user","content":"Q"}],
		"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}},{"type":"function","function":{"name":"g"}}]}`,
	"OpenAI Responses": `{"model":"m","stream":true,"max_output_tokens":2000,"n":1,"instructions":"S",
		"input":[{"role":"user","content":"Q"},{"role":"assistant","content":[{"type":"output_text","text":"A"}]},{"role":"user","content":"Q"}],
		"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"max_tokens":{"type":"integer"}}}},{"type":"web_search"}]}`,
	"Anthropic messages": `{"model":"m","stream":true,"max_tokens":2000,"n":1,"system":[{"type":"text","text":"S"},{"type":"text","text":"T"}],
		"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},{"role":"user","content":[{"type":"tool_result","content":"{\"max_tokens\":9}"}]}],
		"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g"}]}`,
	"Gemini": `{"stream":true,"generationConfig":{"maxOutputTokens":2000,"candidateCount":1,"temperature":0.5},"systemInstruction":{"parts":[{"text":"S"}]},
		"contents":[{"role":"user","parts":[{"text":"Q"}]},{"role":"model","parts":[{"text":"A"}]},{"role":"user","parts":[{"text":"Q"}]}],
		"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}},{"name":"g"}]}]}`,
	"Gemini, snake_case and wrapped": `{"model":"m","request":{"stream":true,"generation_config":{"max_output_tokens":"2000","candidate_count":1},
		"system_instruction":{"parts":{"text":"S"}},"contents":[{"parts":[]},{"parts":[]},{"parts":[]}],
		"tools":[{"function_declarations":[{"name":"f"}]},{"googleSearch":{}}]}}`,
}

// The same conversation has the same features in every shape, but for its bytes.
func TestShapes(t *testing.T) {
	for name, body := range bodies {
		f, err := Features([]byte(body))
		require.NoError(t, err, name)
		assert.Equal(t, lanes.Features{Bytes: int64(len(body)), Tokens: 2000, Messages: 4, Tools: 2, N: 1, Stream: true}, f, name)
		assert.Equal(t, int64(8), Price([]byte(body)), name)
		check(t, []byte(body))
	}
}

// What each field is worth, whatever stands in it.
func TestFields(t *testing.T) {
	const most = math.MaxInt64
	for body, want := range map[string]lanes.Features{
		`{}`:                            {Messages: 1},
		`{"model":"m","prompt":"P"}`:    {Messages: 1},
		`[{"max_tokens":5}]`:            {Messages: 1},
		`"messages"`:                    {Messages: 1},
		" 7\n":                          {Messages: 1},
		`{"a":{"max_tokens":5,"n":5}}`:  {Messages: 1},
		`{"messages":[{"n":5,"n":[]}]}`: {Messages: 1},

		// Lists.
		`{"messages":[1,"",{},[],null]}`:                      {Messages: 5},
		`{"input":"text"}`:                                    {Messages: 1},
		`{"input":"text","instructions":"S"}`:                 {Messages: 2},
		`{"messages":[],"system":null}`:                       {Messages: 1},
		`{"messages":null}`:                                   {Messages: 1},
		`{"messages":{"a":[1,2,3]}}`:                          {Messages: 1},
		`{"messages":[1,2],"messages":[1,2,3],"messages":[]}`: {Messages: 3},
		`{"messages":[1,2],"input":[1,2,3],"contents":[1]}`:   {Messages: 3},
		`{"tools":null,"functions":null}`:                     {Messages: 1},
		`{"tools":[1,{}],"functions":[{},{}]}`:                {Messages: 1, Tools: 4},
		`{"tools":[],"tools":[1,2],"tools":[1]}`:              {Messages: 1, Tools: 2},
		`{"tools":"auto","functions":{}}`:                     {Messages: 1, Tools: 2},
		`{"tools":[{"functionDeclarations":[]},{"functionDeclarations":null},{"functionDeclarations":[1,2,3]},{"codeExecution":{}}]}`: {Messages: 1, Tools: 6},
		`{"tools":{"functionDeclarations":[1,2,3]}}`:                                                        {Messages: 1, Tools: 3},
		`{"tools":[{"functionDeclarations":[1,2,3],"functionDeclarations":[1]}],"tools":[1,2]}`:             {Messages: 1, Tools: 3},
		`{"tools":[{"a":{"functionDeclarations":[1,2,3]},"functionDeclarations":[{"functions":[1,2,3]}]}]}`: {Messages: 1, Tools: 1},

		// Numbers.
		`{"max_tokens":5}`: {Messages: 1, Tokens: 5},
		`{"max_tokens":5,"max_completion_tokens":7,"max_output_tokens":6}`:            {Messages: 1, Tokens: 7},
		`{"max_tokens":7,"max_tokens":5}`:                                             {Messages: 1, Tokens: 7},
		`{"max_tokens":null,"n":null}`:                                                {Messages: 1},
		`{"max_tokens":-1,"n":-9223372036854775808}`:                                  {Messages: 1},
		`{"max_tokens":-0.0,"n":-1e400}`:                                              {Messages: 1},
		`{"max_tokens":4096.25,"n":1e1}`:                                              {Messages: 1, Tokens: 4097, N: 10},
		`{"max_tokens":1e400,"n":99999999999999999999}`:                               {Messages: 1, Tokens: most, N: most},
		`{"max_tokens":"4096","n":" 2 "}`:                                             {Messages: 1, Tokens: 4096, N: 2},
		`{"max_tokens":"unlimited"}`:                                                  {Messages: 1, Tokens: most},
		`{"max_tokens":""}`:                                                           {Messages: 1, Tokens: most},
		`{"max_tokens":true,"n":[]}`:                                                  {Messages: 1, Tokens: most, N: most},
		`{"max_tokens":{"max_tokens":5}}`:                                             {Messages: 1, Tokens: most},
		`{"max_tokens":0.` + strings.Repeat("0", 99) + `}`:                            {Messages: 1, Tokens: most},
		`{"generationConfig":{"maxOutputTokens":8,"candidateCount":3,"stream":true}}`: {Messages: 1, Tokens: 8, N: 3},
		`{"generationConfig":[{"maxOutputTokens":8}]}`:                                {Messages: 1},
		`{"generationConfig":{"x":{"maxOutputTokens":8}}}`:                            {Messages: 1},

		// Spellings that some server takes for the same.
		`{"MAX_TOKENS":5,"N":2,"Messages":[1,2]}`: {Messages: 2, Tokens: 5, N: 2},
		`{"max\u005ftokens":5,"\u006e":2}`:        {Messages: 1, Tokens: 5, N: 2},
		`{"max_to` + "\u212a" + `ens":5}`:         {Messages: 1, Tokens: 5},
		"{\"max_tokens\xff\":5,\"n\\ud800\":2}":   {Messages: 1},

		// A stream is one only without a doubt.
		`{"stream":true}`:                               {Messages: 1, Stream: true},
		`{"stream":true,"stream":true}`:                 {Messages: 1, Stream: true},
		`{"stream":true,"stream":false}`:                {Messages: 1},
		`{"stream":false,"stream":true}`:                {Messages: 1},
		`{"stream":true,"stream":null}`:                 {Messages: 1},
		`{"stream":"true"}`:                             {Messages: 1},
		`{"stream":1}`:                                  {Messages: 1},
		`{"STREAM":true}`:                               {Messages: 1},
		`{"stream":true,"STREAM":false}`:                {Messages: 1},
		`{"stream":[true],"stream":true}`:               {Messages: 1},
		`{"stream_options":{"stream":1},"stream":true}`: {Messages: 1, Stream: true},

		// One wrapper, and no more.
		`{"request":{"max_tokens":5,"messages":[1,2]},"n":2}`: {Messages: 2, Tokens: 5, N: 2},
		`{"Request":{"max_tokens":5},"request":{"n":2}}`:      {Messages: 1, Tokens: 5, N: 2},
		`{"request":{"request":{"max_tokens":5}}}`:            {Messages: 1},
		`{"request":[{"max_tokens":5}]}`:                      {Messages: 1},
	} {
		want.Bytes = int64(len(body))
		f, err := Features([]byte(body))
		require.NoError(t, err, body)
		assert.Equal(t, want, f, body)
		check(t, []byte(body))
	}
}

// What is no JSON costs the most there is: some server may read more in it than this.
func TestNotJSON(t *testing.T) {
	for _, body := range []string{
		" ", "x", "{", "}", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1 "b":2}`, `{a:1}`, `{'a':1}`, `{"a":1}{}`, `{"a":1} x`, `{"a":1}]`, "{}\x00",
		`[1,]`, `[,1]`, `[1 2]`, `[1`, `[`, `{"n":01}`, `{"n":+1}`, `{"n":1.}`, `{"n":.5}`, `{"n":1e}`, `{"n":0x1}`, `{"n":NaN}`, `{"n":-}`, `{"n":tru}`, `{"n":nul}`,
		`{"stream":tru}`, `{"stream":trux}`, `{"stream":falsy}`, `{"n":"}`, `{"n":"\x"}`, `{"n":"\u00g0"}`, "{\"n\":\"\n\"}", "{\"\t\":1}", `{"n":1}/**/`, `{1:1}`, `{null:1}`,
		"\ufeff{}", "{\x000\x00}\x00", `data: {"n":1}`, "{\"n\":1}\n{\"n\":1}", `{"messages":[}`, `{"tools":[{]}`, `{"generationConfig":{"n":}}`, `{"request":{}`,
	} {
		f, err := Features([]byte(body))
		assert.ErrorIs(t, err, ErrNotJSON, "%q", body)
		assert.EqualValues(t, lanes.MaxPrice, lanes.Price(f), "%q", body)
		check(t, []byte(body))
	}
}

// No body costs what an empty request costs.
func TestEmpty(t *testing.T) {
	for _, body := range [][]byte{nil, {}} {
		f, err := Features(body)
		require.NoError(t, err)
		assert.Equal(t, lanes.Features{Messages: 1}, f)
	}
	assert.EqualValues(t, 5, Price(nil))
	assert.EqualValues(t, 6, Price([]byte(`{"messages":[{"role":"user","content":"Hello"}]}`)), "a small call")
}

// Numbers by themselves, at their ends.
func TestParse(t *testing.T) {
	zeros := strings.Repeat("0", 61)
	for raw, want := range map[string]int64{
		"0": 0, "-1": 0, "1": 1, "-9223372036854775808": 0, "-9223372036854775809": 0, "-1e400": 0, "-0.5": 0, "0.1": 1, "1.0": 1, "1e-9": 1,
		"9007199254740993": 1<<53 + 1, "9223372036854775807": math.MaxInt64, "9223372036854775808": math.MaxInt64, "9.2e18": 9.2e18, "9.3e18": math.MaxInt64,
		"1." + zeros + "0": 1, "1." + zeros + "00": math.MaxInt64, `"1.` + zeros + `"`: math.MaxInt64, `"1.` + zeros[2:] + `"`: 1, // 64 and 65 bytes
		`"7"`: 7, `"\u0037"`: math.MaxInt64, "\"\u00a07 \"": 7, `"+7"`: 7, `"-7"`: 0, `".5"`: 1, `"7e"`: math.MaxInt64, `"-"`: math.MaxInt64, `""`: math.MaxInt64,
		`"0x10"`: math.MaxInt64, `"1_000"`: math.MaxInt64, `"inf"`: math.MaxInt64, `"-Infinity"`: math.MaxInt64, `"nan"`: math.MaxInt64, `"7 tokens"`: math.MaxInt64,
	} {
		assert.Equal(t, want, parse([]byte(raw)), raw)
	}
}

// One string and thirty thousand small ones that take as many bytes cost the same: bytes are
// charged once, whatever their shape, and nothing is derived from them.
func TestPriceDoesNotDependOnShape(t *testing.T) {
	const n = 30_000
	parts := strings.Repeat(`"0123456789",`, n)
	many := `{"messages":[{"content":[` + parts[:len(parts)-1] + `]}]}`
	one := `{"messages":[{"content":"` + strings.Repeat("x", len(many)-len(`{"messages":[{"content":""}]}`)) + `"}]}`
	require.Len(t, many, len(one))
	want := 1 + int64(len(one)+16383)/16384 + 1 + 1 + 2
	assert.Equal(t, want, Price([]byte(one)))
	assert.Equal(t, want, Price([]byte(many)))
}
