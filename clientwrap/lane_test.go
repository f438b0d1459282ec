package clientwrap_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// laneOf sends a request and returns the lane that it went through.
func laneOf(t *testing.T, c clientwrap.Config, r *http.Request) string {
	t.Helper()
	l := slots(t, 1)
	resp, err := clientwrap.NewTransport(roundTrip(hello), l, c).RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return lane(t, l).Lane
}

// A lane is scheme and host, and nothing that does not change where a request goes.
func TestLaneByHost(t *testing.T) {
	for url, want := range map[string]string{
		"http://api.example.com":                      "http://api.example.com",
		"HTTP://API.Example.COM:80/v1?q#f":            "http://api.example.com",
		"https://user:password@api.example.com:443/x": "https://api.example.com",
		"https://api.example.com:80/":                 "https://api.example.com:80",
		"http://api.example.com:443/":                 "http://api.example.com:443",
		"http://[2001:DB8::1]:80/":                    "http://[2001:db8::1]",
		"http://[2001:db8::80]/":                      "http://[2001:db8::80]",
		"http://127.0.0.1:8080/":                      "http://127.0.0.1:8080",
	} {
		r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		r.Host = "other.example.com" // a header, not a place
		assert.Equal(t, want, laneOf(t, clientwrap.Config{}, r), url)
		empty := clientwrap.Config{Lane: func(*http.Request) string { return "" }}
		assert.Equal(t, want, laneOf(t, empty, r), url)
	}
	r := request(t, context.Background(), nil)
	assert.Equal(t, "mine", laneOf(t, clientwrap.Config{Lane: func(*http.Request) string { return "mine" }}, r))
	r.URL = nil // the base says what it thinks of that
	assert.Equal(t, "default", laneOf(t, clientwrap.Config{}, r))
}

// One transport keeps the lanes of many hosts apart.
func TestLanesOfManyHosts(t *testing.T) {
	l := slots(t, 1)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	hosts := []string{"http://a.example.com", "http://b.example.com", "https://a.example.com"}
	for range 3 {
		for _, h := range hosts {
			resp, err := get(t, context.Background(), &http.Client{Transport: tr}, h+"/x")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	for i, s := range l.Snapshot().Lanes {
		assert.Equal(t, hosts[i], s.Lane)
		assert.EqualValues(t, 3, s.Granted)
	}
}

// once hides the concrete type of a reader, so that no request can have it again.
type once struct{ io.Reader }

// The model is found in any body, and the body is sent as it was.
func TestLaneByModel(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, test := range map[string]struct{ body, again, streamed string }{
		"plain":            {`{"model": "m"}`, "m", "m"},
		"other":            {`{"model": "gpt-9"}`, "other", "other"},
		"none":             {`{"messages": []}`, "other", "other"},
		"nested":           {`{"a": {"model": "m"}, "model": "n"}`, "n", "n"},
		"in a string":      {`{"a": "\"model\": \"m\", ", "b": ["model", "m"], "model": "n"}`, "n", "n"},
		"in a list":        {`[{"model": "m"}]`, "other", "other"},
		"escaped":          {`{"mod\u0065l": "\u006d"}`, "m", "m"},
		"value of a key":   {`{"x": "model", "y": "m"}`, "other", "other"},
		"no string":        {`{"model": {"model": "m"}}`, "other", "other"},
		"null":             {`{"model": null}`, "other", "other"},
		"twice":            {`{"model": "m", "model": "n"}`, "m", "m"},
		"another case":     {`{"Model": "m"}`, "other", "other"},
		"late":             {`{"prompt": "` + long + `", "model": "m"}`, "m", "other"},
		"too late":         {`{"prompt": "` + strings.Repeat(long, 6) + `", "model": "m"}`, "other", "other"},
		"broken":           {`{"model": "m`, "other", "other"},
		"bad escape":       {`{"model": "\q", "model": "m"}`, "other", "other"},
		"no JSON":          {`model=m`, "other", "other"},
		"empty":            {``, "other", "other"},
		"long model":       {`{"model": "` + strings.Repeat("m", 600) + `"}`, "other", "other"},
		"long key":         {`{"` + long + `": 1, "model": "m"}`, "m", "other"},
		"leading space":    {" \r\n\t{ \n\"model\" \t: \r\"m\" }", "m", "m"},
		"rest is no JSON":  {`{"model": "m"` + long, "m", "m"},
		"byte order mark":  {"\ufeff" + `{"model": "m"}`, "other", "other"},
		"a lone string":    {`"model"`, "other", "other"},
		"a lone number":    {`1`, "other", "other"},
		"commas and words": {`{"a": true, "b": [1, {"c": null}], "d": -1e9, "model": "m"}`, "m", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, again := range []bool{true, false} {
				l := slots(t, 1)
				var sent string
				var length int64
				tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
					sent, length = "", r.ContentLength
					if r.Body != nil {
						sent = readAll(t, r.Body)
						require.NoError(t, r.Body.Close())
					}
					if r.GetBody != nil {
						b, err := r.GetBody()
						require.NoError(t, err)
						assert.Equal(t, test.body, readAll(t, b))
					}
					return answer(r, 200, http.NoBody), nil
				}), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m", "n")})
				body := newSpy(test.body)
				r := request(t, context.Background(), body)
				r.ContentLength = int64(len(test.body))
				want := "http://api.example.com|" + test.streamed
				if again {
					r.GetBody = func() (io.ReadCloser, error) { return text(test.body), nil }
					want = "http://api.example.com|" + test.again
				}
				_, err := tr.RoundTrip(r)
				require.NoError(t, err)
				assert.EqualValues(t, 1, body.closed.Load())
				assert.Equal(t, test.body, sent)
				assert.EqualValues(t, len(test.body), length)
				assert.Equal(t, want, lane(t, l).Lane)
			}
		})
	}
}

// The lane is the one that Do waits in, if both are told the same.
func TestLaneByModelIsLaneKey(t *testing.T) {
	models := []string{"m", "n"}
	for _, base := range []string{"https://API.example.com/v1/", "http://u:p@x.example.com:8080?q"} {
		for _, model := range []string{"m", "n", "o"} {
			r := request(t, context.Background(), strings.NewReader(`{"model": "`+model+`"}`))
			got := laneOf(t, clientwrap.Config{Lane: clientwrap.LaneByModel(base, models...)}, r)
			assert.Equal(t, inflight.LaneKey(base, model, models), got)
		}
	}
}

// A body whose sender fails is sent on with that very failure.
func TestLaneByModelReadFails(t *testing.T) {
	l := slots(t, 1)
	why := errors.New("the sender left")
	tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		assert.Equal(t, `{"mod`, string(b))
		assert.Equal(t, why, err)
		return nil, err
	}), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
	_, err := tr.RoundTrip(request(t, context.Background(), &hiccup{text: `{"mod`, err: why}))
	assert.Equal(t, why, err)

	copied := newSpy(`{"model": "m"}`)
	r := request(t, context.Background(), strings.NewReader(`{"model": "m"}`))
	r.GetBody = func() (io.ReadCloser, error) { return copied, nil }
	assert.Equal(t, "http://api.example.com|m", laneOf(t, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")}, r))
	assert.EqualValues(t, 1, copied.closed.Load())
	r.GetBody = func() (io.ReadCloser, error) { return nil, why } // then it is not known
	assert.Equal(t, "http://api.example.com|other", laneOf(t, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")}, r))
}

// hiccup gives a text, an error once, and then goes on as if nothing had happened.
type hiccup struct {
	text string
	err  error
}

func (h *hiccup) Read(p []byte) (int, error) {
	if h.text == "" {
		return copy(p, `el": "m"}`), io.EOF
	}
	n := copy(p, h.text)
	h.text = ""
	return n, h.err
}

// Nothing but the context bounds how long a sender may take; its end is heard of.
func TestLaneByModelWaitsForTheSender(t *testing.T) {
	l := slots(t, 1)
	pr, pw := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
	_, err := tr.RoundTrip(request(t, ctx, pr))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for err = nil; err == nil; { // the body is closed in its own time
		_, err = pw.Write([]byte("x"))
	}
	require.ErrorIs(t, err, io.ErrClosedPipe)
	assert.Equal(t, 0, inFlight(l))
}

// What was read to find the model is closed with the rest when there is no slot, and a
// body that is too short to hold one costs nothing.
func TestLaneByModelRefused(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: "http://api.example.com|m"})
	require.NoError(t, err)
	defer lease.Release()
	body := newSpy(`{"model": "m"}`)
	resp, err := tr.RoundTrip(request(t, context.Background(), once{body}))
	_ = refusal(t, resp, err)
	assert.Zero(t, body.closed.Load(), "hidden behind a NopCloser")
	resp, err = tr.RoundTrip(request(t, context.Background(), body))
	require.NoError(t, err, "another lane: there is nothing more to read")
	require.NoError(t, resp.Body.Close())
	assert.EqualValues(t, 1, body.closed.Load())
	again := newSpy(`{"model": "m"}`)
	resp, err = tr.RoundTrip(request(t, context.Background(), again))
	_ = refusal(t, resp, err)
	assert.EqualValues(t, 1, again.closed.Load())
}

// Without models nothing depends on the body, so it is not read: a client that waits to
// be asked for it (Expect: 100-continue) is not asked for the lane's sake.
func TestLaneByNoModelsLeavesTheBody(t *testing.T) {
	body := iotest.ErrReader(errors.New("it was read"))
	r, err := http.NewRequest(http.MethodPost, "https://llm.example.com/v1", io.NopCloser(body))
	require.NoError(t, err)
	before := r.Body
	assert.Equal(t, "https://llm.example.com|other", clientwrap.LaneByModel("")(r))
	assert.Equal(t, "https://a.example.com/v1|other", clientwrap.LaneByModel("https://a.example.com/v1")(r))
	assert.Equal(t, before, r.Body)
}
