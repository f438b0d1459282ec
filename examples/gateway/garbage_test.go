package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// speaks is a back end that answers each call with the given bytes and then closes the
// connection, if it is to. over gets a value whenever a connection has ended.
func speaks(t *testing.T, answer string, closes bool) (url string, over <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	ended := make(chan struct{}, 100)
	go func() { // until l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { c.Close(); ended <- struct{}{} }()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if _, err := io.WriteString(c, answer); err != nil || closes {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), ended
}

// Whatever a back end answers that is no answer is 502, and neither the client nor the
// log gets to see what it was: it may be somebody else's.
func TestBackEndAnswersGarbage(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, answer := range map[string]string{
		"nothing":               "",
		"no HTTP":               "secret\r\n\r\n",
		"no HTTP, with quotes":  `say "secret" \"secret" secret` + "\r\n\r\n",
		"TLS":                   "\x15\x03\x01secret",
		"half a head":           ok + "X-Half: secret",
		"no header line":        ok + "secret\r\n\r\n",
		"no first header line":  ok + " secret\r\n\r\n",
		"a NUL":                 ok + "X-Nul: secret\x00\r\n\r\n",
		"two lengths":           ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nsecret",
		"no length":             ok + "Content-Length: secret\r\n\r\n",
		"a negative length":     ok + "Content-Length: -1\r\n\r\nsecret",
		"an unknown coding":     ok + "Transfer-Encoding: secret\r\n\r\n",
		"an endless head":       ok + strings.Repeat("X-Secret: secret\r\n", 10_000),
		"a long status":         "HTTP/1.1 2000 secret\r\n\r\n",
		"no status":             "HTTP/1.1 secret\r\n\r\n",
		"a status of 0":         "HTTP/1.1 000 secret\r\nContent-Length: 0\r\n\r\n",
		"a status under 100":    "HTTP/1.1 099 secret\r\nContent-Length: 0\r\n\r\n",
		"another protocol":      "HTTP/1.1 101 secret\r\nConnection: Upgrade\r\nUpgrade: secret\r\n\r\nsecret",
		"interim answers alone": "HTTP/1.1 103 Early Hints\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := speaks(t, answer, true)
			a := start(t, "log_level: debug\ninflight: {max_inflight: 1}", "-upstream", url)
			for _, api := range apis {
				c := a.dial()
				c.post(api.path, "Content-Length: 2")
				c.say("{}")
				resp, text, err := c.tryAnswer()
				for err == nil && resp.StatusCode == http.StatusEarlyHints {
					resp, text, err = c.tryAnswer()
				}
				require.NoError(t, err, a.log.String())
				requireShape(t, api.path, resp, text, 502)
				requireNoSecrets(t, text)
			}
			a.untilZero()
			a.logs("the upstream did not answer")
			requireNoSecrets(t, strings.ReplaceAll(a.log.String(), "tenants", ""))
			assert.NotContains(t, a.log.String(), "panic")
		})
	}
}

// What a back end sends behind an answer is nobody's, and not for the log.
func TestBackEndSaysMore(t *testing.T) {
	url, over := speaks(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and a secret", false)
	p := startProcess(t, "", "-upstream", url)
	for _, api := range apis {
		resp, text := p.ask(api.path, "{}")
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, "ok", text)
		<-over // the gateway has seen it
	}
	p.signal()
	assert.Zero(t, p.exit())
	requireNoSecrets(t, strings.ReplaceAll(p.log.String(), "tenants", ""))
}

// The log says why, without what the other side has sent.
func TestWithoutQuotes(t *testing.T) {
	for text, want := range map[string]string{
		"dial tcp 127.0.0.1:1: connect: connection refused":      "dial tcp 127.0.0.1:1: connect: connection refused",
		`broken: malformed HTTP response "a\"b\\" and "c"`:       `broken: malformed HTTP response (not shown) and (not shown)`,
		"broken: malformed MIME header line: Set-Cookie a=b":     "broken: malformed MIME header line: (not shown)",
		"broken: malformed MIME header initial line:  Cookie: a": "broken: malformed MIME header initial line: (not shown)",
	} {
		assert.Equal(t, want, withoutQuotes(errors.New(text)))
	}
}
