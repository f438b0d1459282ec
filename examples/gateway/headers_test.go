package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a stranger says about where a call comes from does not reach the back end;
// the address of the peer does.
func TestSpoofedHeaders(t *testing.T) {
	back := models(t, 0)
	a := start(t, "", "-upstream", back.URL)
	resp, answer := a.ask("/v1/messages", question(false, 0),
		"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2.2.2.2", "Forwarded", "for=1.1.1.1", "X-Forwarded-Host", "evil",
		"X-Forwarded-Proto", "https", "X-Forwarded-Prefix", "/evil", "X-Real-Ip", "1.1.1.1",
		"Headgate-Class", "interactive", "Connection", "X-Hop, Keep-Alive, Upgrade", "X-Hop", "1", "Keep-Alive", "timeout=1",
		"Proxy-Authorization", "Basic eDp5", "Te", "trailers, deflate", "Upgrade", "h2c", "Http2-Settings", "AAMAAABkAAQAAP__",
	)
	require.Equal(t, 200, resp.StatusCode, answer)
	h := back.done(1)[0].header
	assert.Equal(t, []string{"127.0.0.1"}, h.Values("X-Forwarded-For"))
	assert.Equal(t, []string{a.addr}, h.Values("X-Forwarded-Host"))
	assert.Equal(t, []string{"http"}, h.Values("X-Forwarded-Proto"))
	assert.Equal(t, []string{"trailers"}, h.Values("Te"))
	for _, name := range []string{
		"Forwarded", "X-Forwarded-Prefix", "X-Real-Ip", "Headgate-Class", "Connection", "X-Hop", "Keep-Alive",
		"Proxy-Authorization", "Upgrade",
	} {
		assert.NotContains(t, h, name)
	}
}

// Without tenants the client's own key for the back end goes on, and nothing is added
// that the client has not sent.
func TestHeadersPass(t *testing.T) {
	back := models(t, 0)
	a := start(t, "", "-upstream", back.URL)
	c := a.dial()
	c.post("/v1/messages?beta=true&x=%zz;y", "Content-Length: 13", "Authorization: Bearer sk-mine", "X-Api-Key: sk-too", "Accept: */*", "Cookie: a=b")
	c.say(`{"model": "m"}`[:13])
	resp, _ := c.answer()
	require.Equal(t, 400, resp.StatusCode, "the mock's own answer to a cut body")
	seen := back.done(1)[0]
	assert.Equal(t, "/v1/messages?beta=true&x=%zz;y", seen.uri, "the query as it came")
	assert.Equal(t, strings.TrimPrefix(back.URL, "http://"), seen.host)
	want := http.Header{
		"Authorization": {"Bearer sk-mine"}, "X-Api-Key": {"sk-too"}, "Accept": {"*/*"}, "Cookie": {"a=b"}, "Content-Length": {"13"},
		"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"test"}, "X-Forwarded-Proto": {"http"},
	}
	assert.Equal(t, want, seen.header)
}

// The path of -upstream stands in front of the API's own.
func TestUpstreamWithPath(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, path := range []string{"", "/", "/base", "/base/"} {
		a := start(t, "", "-upstream", back.URL+path)
		a.ask("/v1/responses?q=1", "{}")
	}
	var paths []string
	for _, c := range back.done(4) {
		paths = append(paths, c.uri)
	}
	assert.Equal(t, []string{"/v1/responses?q=1", "/v1/responses?q=1", "/base/v1/responses?q=1", "/base/v1/responses?q=1"}, paths)
}

// Redirects, compressed answers and trailers pass as they are.
func TestAnswersPassAsTheyAre(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Trailer", "X-Sum")
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.WriteHeader(http.StatusTemporaryRedirect)
		_, _ = io.WriteString(w, "not really gzip")
		w.Header().Set("X-Sum", "7")
	}))
	a := start(t, "", "-upstream", back.URL)
	req := a.request("/v1/responses", "{}")
	req.Header.Set("Accept-Encoding", "gzip") // so that the client does not unpack it
	resp, err := a.client.Transport.RoundTrip(req)
	require.NoError(t, err)
	head, text, err := read(resp)
	require.NoError(t, err)
	assert.Equal(t, 307, head.StatusCode)
	assert.Equal(t, "not really gzip", text)
	assert.Equal(t, "gzip", head.Header.Get("Content-Encoding"))
	assert.Equal(t, []string{"a=1", "b=2"}, head.Header.Values("Set-Cookie"))
	assert.Equal(t, "7", resp.Trailer.Get("X-Sum"))
}

// A back end that switches protocols would lead past the routes.
func TestNoUpgrade(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	a := start(t, "", "-upstream", back.URL)
	resp, answer := a.ask("/v1/responses", "{}", "Connection", "Upgrade", "Upgrade", "websocket")
	requireShape(t, "/v1/responses", resp, answer, 502)
	a.untilZero()
}

// Another method or an unknown path under /v1 does not reach the back end.
func TestOtherCalls(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	a := start(t, "", "-upstream", back.URL)
	for _, api := range apis {
		for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS", "BREW"} {
			resp, answer := a.do(method, api.path, strings.NewReader("{}"))
			if method == "OPTIONS" && *framework == "echo" {
				assert.Equal(t, 204, resp.StatusCode, "Echo answers it")
				continue
			}
			requireShape(t, api.path, resp, answer, 405)
			assert.Equal(t, "POST", resp.Header.Get("Allow"))
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/models", "/v1/messages/", "/v1/messages/count_tokens", "/v1/chat", "/V1/MESSAGES", "/stats"} {
		resp, _ := a.do("POST", path, nil)
		assert.Equal(t, 404, resp.StatusCode, path)
	}
	back.done(0)
	a.untilZero()
}

// An answer that comes before the body was read reaches a client that sends on, one that
// stalls, and one that waits to be asked.
func TestAnswerBeforeTheBody(t *testing.T) {
	const text = "too large for me"
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // so that net/http does not read on
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, text)
	}))
	defer back.Close()
	for _, mode := range everyMode() {
		a := start(t, "admission: {body_idle: 1h, body_timeout: 1h, min_body_rate: 0}", "-upstream", back.URL, mode)
		t.Run(mode, func(t *testing.T) {
			for _, body := range []struct {
				name                  string
				declared, sent, later int
			}{
				{"sends on", 5 * mib, 5 * mib, 0},
				{"stalls", 100_000, 1, 0},
				{"stalls before a lot", 5 * mib, 1, 0},
				{"sends a little later", 100_000, 1, 1},
				{"expects", 100_000, 0, 0},
			} {
				t.Run(body.name, func(t *testing.T) {
					t.Parallel() // some wait seconds for a client that does nothing
					c := a.in(t).dial()
					lines := []string{contentLength(body.declared)}
					if body.name == "expects" {
						lines = append(lines, "Expect: 100-continue")
					}
					c.post("/v1/responses", lines...)
					go func() { _, _ = io.WriteString(c, strings.Repeat("x", body.sent)) }() // it may be cut
					if body.name == "expects" && a.in(t).fiberCannot(noContinue) {
						c.continues()
					}
					resp, answer := c.answer()
					assert.Equal(t, 413, resp.StatusCode)
					assert.Equal(t, text, answer)
					for range body.later {
						time.Sleep(200 * time.Millisecond) // a real client on a real socket
						_, _ = io.WriteString(c, "x")
					}
					c.closed()
				})
			}
		})
		if mode != "-bare" {
			a.untilZero()
		}
	}
}

// While a stream runs the body may still be on its way: both go on.
func TestAnswerBesideTheBody(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.WriteString(w, "begun\n")
		_ = http.NewResponseController(w).Flush()
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strconv.FormatInt(n, 10)+" "+strconv.FormatBool(err == nil))
	}))
	a := start(t, smallBudget, "-upstream", back.URL)
	c := a.dial()
	c.post("/v1/responses", "Content-Length: "+strconv.Itoa(3*mib))
	c.say(strings.Repeat("x", mib))
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	line, err := bufio.NewReaderSize(resp.Body, 16).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "begun\n", line)
	assert.EqualValues(t, 3*mib, a.status()["inflight_bytes"], "the body is not read to its end")
	c.say(strings.Repeat("x", 2*mib))
	_, rest, err := read(resp)
	require.NoError(t, err)
	assert.Equal(t, "3145728 true", rest)
	a.untilZero()
}

// A body that its client breaks off or garbles is the client's fault, whatever the
// back end makes of it.
func TestBrokenBodiesOnTheWay(t *testing.T) {
	back := models(t, 0)
	a := start(t, "", "-upstream", back.URL)
	for name, c := range map[string]struct{ head, body string }{
		"ends early":        {"Content-Length: 1000000", strings.Repeat("x", 999_999)},
		"ends at once":      {"Content-Length: 10", ""},
		"chunks end early":  {"Transfer-Encoding: chunked", "5\r\nab"},
		"a bad chunk size":  {"Transfer-Encoding: chunked", "2\r\nab\r\nxyz\r\n"},
		"no chunk's CRLF":   {"Transfer-Encoding: chunked", "2\r\nabcdef"},
		"a huge chunk size": {"Transfer-Encoding: chunked", "FFFFFFFFFFFFFFFFF\r\nab"},
	} {
		for _, api := range apis {
			t.Run(name+" "+api.path, func(t *testing.T) {
				conn := a.in(t).dial()
				conn.post(api.path, c.head)
				conn.say(c.body)
				_ = conn.CloseWrite()
				resp, answer := conn.answer()
				assert.True(t, resp.Close)
				if name == "ends at once" && a.in(t).fiberCannot(noSmallBody) {
					assert.Equal(t, 400, resp.StatusCode)
					assert.Equal(t, "the body ends early or is not well-formed\n", answer)
					return
				}
				s := requireShape(t, api.path, resp, answer, 400)
				assert.Equal(t, "the body ends early or is not well-formed", s.Error.Message)
			})
		}
	}
	a.untilZero()
	assert.NotContains(t, a.log.String(), "did not answer")
}
