package clientwrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowModel finds the model with encoding/json: the first "model" of the outermost
// object.
func slowModel(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		var value any
		if d.Decode(&value) != nil {
			return ""
		}
		if key == "model" {
			model, _ := value.(string)
			return model
		}
	}
	return ""
}

func FuzzReadModel(f *testing.F) {
	for _, s := range []string{
		`{"model":"m"}`, `{"a":{"model":"x"},"model":"m"}`, `{"a":"\"model\":\"x\"","model":"m"}`, `[{"model":"m"}]`,
		`{"mod\u0065l":"\u006d\ud83d\ude00"}`, `{"model":null,"model":"m"}`, `{"model":"m","model":"n"}`, `{"a":[[],{},[{}]],"model":"m"}`,
		`{"a":1e9,"b":true,"c":"\\","model":"\\"}`, `{"model":1}`, `{"":"model","model":""}`, ` { "model" : "m" } `, `{"model":["m"]}`,
		"{\"model\":\"\xff\"}", `{"model":"\ud800"}`, `"model"`, `{`, ``, `}`, `{"model"`, `{"model":`, `{"model":"`, `{"a":"b" "model":"m"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, err := readModel(bytes.NewReader(text), maxScan)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		pieces, _ := readModel(iotest.OneByteReader(bytes.NewReader(text)), maxScan)
		if pieces != whole {
			t.Fatalf("in pieces %q, whole %q", pieces, whole)
		}
		if !json.Valid(text) {
			return // any answer will do
		}
		want := slowModel(text)
		if len(want) > maxModel/6 || !utf8.Valid(text) { // too long, or encoding/json repairs it
			return
		}
		if whole != want {
			t.Fatalf("%q: have %q, want %q", text, whole, want)
		}
	})
}

// Whatever comes, only so much of it is read, and little more than is needed.
func TestReadModelIsBounded(t *testing.T) {
	endless := &counted{r: io.MultiReader(strings.NewReader(`{"prompt": "`), endless{})}
	model, err := readModel(endless, maxPeek)
	assert.Empty(t, model)
	require.NoError(t, err)
	assert.Equal(t, maxPeek, endless.n)

	early := &counted{r: io.MultiReader(strings.NewReader(`{"model": "m", "prompt": "`), iotest.ErrReader(io.ErrUnexpectedEOF))}
	model, err = readModel(early, maxPeek)
	assert.Equal(t, "m", model)
	require.NoError(t, err)

	var s modelScan
	s.feed([]byte(`{"model": "`))
	s.feed(bytes.Repeat([]byte("m"), 10*maxModel))
	assert.True(t, s.done)
	assert.LessOrEqual(t, cap(s.text), 2*maxModel, "and only so much is kept")
}

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
