package main

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/core/inflight"
)

// framework serves the gateways of the tests that name none:
//
//	go test ./gateway -framework gin
var framework = flag.String("framework", "nethttp", "serve the tests' gateways with this `framework`: "+frameworkNames())

// everyFramework returns the flags that choose each of them.
func everyFramework() []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(frameworks)) {
		args = append(args, "-framework="+name)
	}
	return args
}

// everyMode is each framework with headgate, and one without.
func everyMode() []string { return append(everyFramework(), "-bare") }

// exchanges are what TestFrameworksAnswerAlike sends, by name: what must be answered
// alike, and what the frameworks answer in their own way. In full says what the budget
// and the lane of the back end are full of meanwhile.
var exchanges = []struct {
	name, line string
	lines      []string
	body       string
	full       string // "bytes" or "slots"
}{
	{name: "200 echo", line: "POST /echo", lines: []string{"Content-Length: 4"}, body: "body"},
	{name: "200 health", line: "GET /healthz"},
	{name: "200 health HEAD", line: "HEAD /healthz"},
	{name: "200 status", line: "GET /headgate/inflight"},
	{name: "200 status HEAD", line: "HEAD /headgate/inflight"},
	{name: "200 page", line: "GET /headgate/"},
	{name: "403 status", line: "GET /headgate/status", lines: []string{"Via: 1.1 proxy"}},

	{name: "413 declared", line: "POST /echo", lines: []string{"Content-Length: 9000000"}},
	{name: "413 declared OpenAI", line: "POST /v1/responses", lines: []string{"Content-Length: 9000000"}},
	{name: "413 declared Anthropic", line: "POST /v1/messages", lines: []string{"Content-Length: 9000000"}},
	{name: "413 in the handler", line: "POST /echo", lines: chunked, body: tooLong},
	{name: "413 on the way", line: "POST /v1/responses", lines: append([]string{alice}, chunked...), body: tooLong},
	{name: "413 in a batch", line: "POST /v1/batch", lines: append([]string{alice}, chunked...), body: tooLong},
	{name: "503 bytes", line: "POST /echo", lines: []string{"Content-Length: 500000"}, full: "bytes"},
	{name: "503 bytes OpenAI", line: "POST /v1/responses", lines: []string{"Content-Length: 500000"}, full: "bytes"},
	{name: "503 bytes Anthropic", line: "POST /v1/messages", lines: []string{"Content-Length: 500000"}, full: "bytes"},
	{name: "503 slot OpenAI", line: "POST /v1/responses", lines: []string{alice, "Content-Length: 2"}, body: "{}", full: "slots"},
	{name: "503 slot Anthropic", line: "POST /v1/messages", lines: []string{alice, "Content-Length: 2"}, body: "{}", full: "slots"},
	{name: "503 slot, body unread", line: "POST /v1/responses", lines: []string{alice, "Content-Length: 2000"}, full: "slots"},
	{name: "401", line: "POST /v1/responses", lines: []string{"Content-Length: 2"}, body: "{}"},
	{name: "401 Anthropic", line: "POST /v1/messages", lines: []string{"Content-Length: 2000"}},
	{name: "400 class", line: "POST /v1/messages", lines: []string{"Authorization: Bearer secret-batch", "Headgate-Class: rapid"}},
	{name: "400 hold", line: "POST /echo?hold=soon", lines: []string{"Content-Length: 2"}, body: "{}"},
	{name: "400 hold, body unread", line: "POST /echo?hold=soon", lines: []string{"Content-Length: 2000"}},
	{name: "400 chunks", line: "POST /echo", lines: chunked, body: "no chunk\r\n"},
	{name: "400 chunks on the way", line: "POST /v1/messages", lines: append([]string{alice}, chunked...), body: "no chunk\r\n"},
	{name: "400 batch", line: "POST /v1/batch", lines: []string{alice, "Content-Length: 2"}, body: "{]"},

	{name: "405 API", line: "GET /v1/messages"},
	{name: "405 API, no such method", line: "BREW /v1/responses", lines: []string{"Content-Length: 2000"}},
	{name: "405", line: "PUT /echo"},
	{name: "405 body unread", line: "POST /healthz", lines: []string{"Content-Length: 2000"}},
	{name: "405 no such method", line: "BREW /echo"},
	{name: "OPTIONS", line: "OPTIONS /echo"},
	{name: "OPTIONS API", line: "OPTIONS /v1/messages"},
	{name: "OPTIONS *", line: "OPTIONS *"},
	{name: "404", line: "GET /nowhere"},
	{name: "404 body unread", line: "POST /v1/models", lines: []string{"Content-Length: 2000"}},
	{name: "404 slash", line: "POST /echo/"},
	{name: "404 escaped slash", line: "POST /v1%2fmessages"},
	{name: "escaped letter", line: "POST /v1/m%65ssages"},
	{name: "two slashes", line: "POST //v1/messages"},
}

const (
	alice   = "Authorization: Bearer secret-alice"
	tooLong = "100000\r\n" // more than hard_max_body_bytes; the rest is put there by the test
)

var chunked = []string{"Transfer-Encoding: chunked"}

// said is an answer as text, without what no two answers have in common.
func said(t *testing.T, method string, resp reply, body string) string {
	t.Helper()
	if n := resp.Header.Get("Content-Length"); method != http.MethodHead && resp.StatusCode != http.StatusNoContent {
		assert.Equal(t, strconv.Itoa(len(body)), n, body)
	}
	resp.Header.Del("Content-Length")
	resp.Header.Del("Date")
	if s := resp.Header.Get("Retry-After"); s != "" { // it is spread
		assert.Regexp(t, `^[1-9]\d*$`, s)
		resp.Header.Set("Retry-After", "N")
	}
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(resp.Header[name], " | "))
	}
	if resp.Close {
		b.WriteString("(the connection ends)\n")
	}
	varies := regexp.MustCompile(`after [0-9.]+m?s|"waited_s":[0-9.]+|"generated_at":"[^"]+"`)
	return b.String() + "\n" + varies.ReplaceAllString(body, "VARIES")
}

// exchangeAll returns what a gateway says in each exchange.
func exchangeAll(t *testing.T, mode string, back *spy, next chan struct{}) map[string]string {
	t.Helper()
	a := start(t, threeTenants+"inflight: {max_inflight: 1, queue_timeout: 50ms}\nadmission: "+
		"{max_inflight_bytes: 8MiB, hard_max_body_bytes: 1MiB, queue_timeout: 50ms, body_idle: 1m, min_body_rate: 0}",
		"-upstream", back.URL, mode)
	answers := map[string]string{}
	for _, full := range []string{"", "bytes", "slots"} {
		var busy sync.WaitGroup
		var holding []*rawConn
		switch full {
		case "bytes":
			for range 8 {
				c := a.dial()
				c.post("/echo", contentLength(mib))
				holding = append(holding, c)
			}
			a.until("the budget is full", func(s status) bool { return s["inflight_bytes"] == 8*mib })
		case "slots":
			busy.Go(func() {
				resp, err := a.client.Do(a.request("/v1/responses", "{}", "Authorization", "Bearer secret-alice"))
				if assert.NoError(t, err) {
					_, _, err = read(resp)
					assert.NoError(t, err)
				}
			})
			a.untilLane("other", "the slot is taken", func(l inflight.LaneSnapshot) bool { return l.Inflight == 1 })
		}
		for _, x := range exchanges {
			if x.full != full {
				continue
			}
			c := a.dial()
			c.say(x.line + " HTTP/1.1\r\n" + strings.Join(append([]string{"Host: localhost"}, x.lines...), "\r\n") + "\r\n\r\n")
			c.say(x.body)
			if a.fiber && x.body == "" && len(x.lines) > 0 { // else it asks nobody
				n, _ := strconv.Atoi(strings.TrimPrefix(x.lines[len(x.lines)-1], "Content-Length: "))
				c.say(strings.Repeat("x", min(n, fiberPrefetch)))
			}
			if x.body == tooLong {
				c.say(strings.Repeat("x", mib) + "\r\n1\r\nx\r\n")
			}
			resp, err := http.ReadResponse(c.r, &http.Request{Method: strings.Fields(x.line)[0]})
			require.NoError(t, err, x.name)
			head, text, err := read(resp)
			require.NoError(t, err, x.name)
			answers[x.name] = said(t, strings.Fields(x.line)[0], head, text)
			c.Close()
		}
		for _, c := range holding {
			c.reset()
		}
		if full == "slots" {
			next <- struct{}{}
		}
		busy.Wait()
		a.untilZero()
	}
	return answers
}

// differences are those between the answers of the frameworks and net/http's, all of
// them. Each says how an answer of net/http becomes the framework's.
var differences = []struct {
	framework string
	exchanges string // their names match it
	why       string
	edits     []string // old, a regular expression, and new in turn
}{
	{"gin", `^(404.*|405|405 body.*|405 no.*|OPTIONS)$`, "Gin answers unknown paths and methods in a text of its own, which a client may take for another type", []string{
		`Content-Type: .*\nX-Content-Type-Options: nosniff`, "Content-Type: text/plain",
		`Method Not Allowed\n`, "405 method not allowed", `404 page not found\n`, "404 page not found",
	}},
	{"gin", `^(OPTIONS \*|two slashes|escaped letter)$`, "Gin compares a path as it is written: " +
		"were it unescaped first, /v1%2fmessages would be /v1/messages; it redirects to no tidied path where the method has no such route", []string{
		`(?s).*`, "404\nContent-Type: text/plain\n\n404 page not found",
	}},
	{"echo", `^(413|503)`, "Echo's error handler writes a refusal, by an encoder that ends its JSON with a newline", []string{`\z`, "\n"}},
	{"echo", `^200 health`, "Echo writes the charset in capitals", []string{"charset=utf-8", "charset=UTF-8"}},
	{"echo", `^(404.*|405|405 body.*|405 no.*)$`, "Echo answers its own errors as JSON, and answers OPTIONS itself", []string{
		`Allow: `, "Allow: OPTIONS, ",
		`Content-Type: .*\nX-Content-Type-Options: nosniff`, "Content-Type: application/json; charset=UTF-8",
		`Method Not Allowed\n`, `{"message":"Method Not Allowed"}` + "\n", `404 page not found\n`, `{"message":"Not Found"}` + "\n",
	}},
	{"echo", `^OPTIONS( API)?$`, "Echo's router answers OPTIONS where a path has routes; no handler is asked", []string{
		`(?s).*`, "204\nAllow: OPTIONS, POST\n\n",
	}},
	{"echo", `^(OPTIONS \*|two slashes|escaped letter)$`, "Echo compares a path as it is written, and does not redirect", []string{
		`(?s).*`, "404\nContent-Type: application/json; charset=UTF-8\n\n" + `{"message":"Not Found"}` + "\n",
	}},
	{"fiber", `^503 slot`, "Fiber has a body of at most 8 KiB before anybody is asked: nothing is left on the connection, which goes on", []string{
		`\(the connection ends\)\n`, "",
	}},
	{"fiber", `^(OPTIONS \*|two slashes|escaped letter)$`, "Fiber compares a path as it is written, and does not redirect", []string{
		`(?s).*`, "404\nContent-Type: text/plain; charset=utf-8\nX-Content-Type-Options: nosniff\n\n404 page not found\n",
	}},
}

// What the routes answer does not depend on the framework: status, headers and body are
// net/http's, but for the differences above.
func TestFrameworksAnswerAlike(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, answerAt(next))
	plain := exchangeAll(t, "-framework=nethttp", back, next)
	for name, answer := range plain {
		if status := regexp.MustCompile(`^\d+`).FindString(name); status != "" {
			assert.Equal(t, status, answer[:3], name)
		}
		if status := name[:3]; status == "413" || status == "503" {
			assert.Contains(t, answer, "Headgate-Reason: ", name)
			assert.Contains(t, answer, "refused locally by ", name)
		} else {
			assert.NotContains(t, answer, "Headgate-Reason", name)
		}
	}
	text := "Content-Type: text/plain; charset=utf-8\nX-Content-Type-Options: nosniff\n\n"
	assert.Equal(t, "404\n"+text+"404 page not found\n", plain["404"])
	assert.Equal(t, "405\nAllow: POST\n"+text+"Method Not Allowed\n", plain["405"])
	assert.Equal(t, "400\n(the connection ends)\n\n", plain["OPTIONS *"])
	assert.Contains(t, plain["two slashes"], "307\nLocation: /v1/messages\n")

	for _, mode := range everyFramework() {
		t.Run(strings.TrimPrefix(mode, "-framework="), func(t *testing.T) {
			answers := exchangeAll(t, mode, back, next)
			for _, x := range exchanges {
				want := plain[x.name]
				for _, d := range differences {
					if mode != "-framework="+d.framework || !regexp.MustCompile(d.exchanges).MatchString(x.name) {
						continue
					}
					before := want
					for i := 0; i < len(d.edits); i += 2 {
						want = regexp.MustCompile(d.edits[i]).ReplaceAllLiteralString(want, d.edits[i+1])
					}
					assert.NotEqual(t, want, before, "%s: no difference: %s", x.name, d.why)
				}
				assert.Equal(t, want, answers[x.name], x.name)
			}
		})
	}
}

// Informational answers of the back end reach the client as such, and the answer behind
// them keeps its status.
func TestEarlyAnswersPass(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		http.Error(w, "gone", http.StatusGone)
	}))
	for _, mode := range everyMode() {
		t.Run(strings.TrimPrefix(mode, "-"), func(t *testing.T) {
			a := start(t, "", "-upstream", back.URL, mode)
			c := a.dial()
			c.post("/v1/responses", "Content-Length: 2")
			c.say("{}")
			if !a.fiberCannot("send informational answers: they are left out") {
				hint, _ := c.answer()
				assert.Equal(t, http.StatusEarlyHints, hint.StatusCode)
				assert.Equal(t, "</style.css>", hint.Header.Get("Link"))
			}
			resp, text := c.answer()
			assert.Equal(t, http.StatusGone, resp.StatusCode)
			assert.Equal(t, "gone\n", text)
			assert.Empty(t, resp.Header.Get("Link"))
		})
	}
}
