package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	echov4 "github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reportOf asks for a report with header lines.
func (a *app) reportOf(method, path string, header ...string) (reply, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, nil)
	require.NoError(a.t, err)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := a.client.Do(req)
	require.NoError(a.t, err)
	got, text, err := read(resp)
	require.NoError(a.t, err)
	return got, text
}

// The page, what it asks for, and the metrics are served alike by every framework, while
// the byte budget is full.
func TestReports(t *testing.T) {
	for _, mode := range everyFramework() {
		t.Run(mode, func(t *testing.T) {
			a := start(t, "admission: {max_inflight_bytes: 8MiB}\ninflight: {max_inflight: 3}", mode)
			c := a.dial()
			c.post("/echo", contentLength(8*mib))
			a.until("the budget is full", func(s status) bool { return s["inflight_bytes"] == 8*mib })

			resp, page := a.reportOf(http.MethodGet, pagePath)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
			assert.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'sha256-")
			assert.Contains(t, page, "<!doctype html>")
			for _, path := range []string{statusPath, inflightPath, historyPath} {
				resp, text := a.reportOf(http.MethodGet, path)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"), path)
				assert.True(t, json.Valid([]byte(text)), "%s: %s", path, text)
			}
			resp, text := a.reportOf(http.MethodGet, metricsPath)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Contains(t, text, fmt.Sprintf("\nheadgate_admission_inflight_bytes %g\n", float64(8*mib)))
			resp, text = a.reportOf(http.MethodHead, metricsPath)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Empty(t, text)

			for _, path := range []string{pagePath, historyPath, metricsPath} {
				resp, _ = a.reportOf(http.MethodPost, path)
				assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, path)
				assert.Contains(t, resp.Header.Get("Allow"), "GET, HEAD", path)
			}
			resp, _ = a.reportOf(http.MethodGet, pagePath+"more")
			assert.Equal(t, http.StatusNotFound, resp.StatusCode)
		})
	}
}

// Reports are for this machine, or for who knows the key alone, which can change meanwhile.
func TestMonitorKey(t *testing.T) {
	for _, mode := range everyFramework() {
		t.Run(mode, func(t *testing.T) {
			const proxied, key = "X-Forwarded-For: 192.0.2.1", "0123456789abcdef"
			a := start(t, "drain_timeout: 10s", mode)
			for _, path := range []string{pagePath, statusPath, inflightPath, historyPath, metricsPath} {
				resp, _ := a.reportOf(http.MethodGet, path)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, proxied)
				assert.Equal(t, http.StatusForbidden, resp.StatusCode, path)
			}
			a.write("monitor_key: " + key)
			a.logs("config applied")
			for _, path := range []string{pagePath, statusPath, metricsPath} {
				resp, _ := a.reportOf(http.MethodGet, path)
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, "Authorization: Bearer "+key)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, text := a.reportOf(http.MethodGet, path, proxied)
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
				assert.Contains(t, resp.Header.Get("WWW-Authenticate"), "Basic realm=")
				assert.NotContains(t, text, key)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: Bearer "+key)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: bearer "+key)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: Basic eDowMTIzNDU2Nzg5YWJjZGVm") // x:key
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: Bearer "+key+"0")
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
			}
			assert.NotContains(t, a.log.String(), key)
		})
	}
}

func TestMonitorKeyIsChecked(t *testing.T) {
	base, err := defaultConfig(noenv)
	require.NoError(t, err)
	for _, key := range []string{"short", strings.Repeat("x", 257), "0123456789 abcdef", "0123456789abcdé"} {
		_, err := parseConfig([]byte("monitor_key: '"+key+"'"), base)
		assert.ErrorContains(t, err, "monitor_key")
		assert.NotContains(t, err.Error(), key)
	}
}

// No more reports than the bound are written at once; the next are refused, and later ones
// served again.
func TestReportsHaveABound(t *testing.T) {
	slots, in, out := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	h := few(slots, time.Hour, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in <- struct{}{}; <-out }))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, metricsPath, nil))
		return w
	}
	for range 3 {
		var busy sync.WaitGroup
		for range 2 {
			busy.Go(func() { assert.Equal(t, http.StatusOK, ask().Code) })
			<-in
		}
		w := ask()
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		out <- struct{}{}
		out <- struct{}{}
		busy.Wait()
	}
}

// Clients that do not read their reports do not keep others from theirs, in no framework.
func TestReportsOfSlowReaders(t *testing.T) {
	began := make(chan struct{}, 10)
	endless := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
		}
		for part := make([]byte, 1<<20); r.URL.Path == "/slow"; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
	served := func(h http.Handler) string {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		return srv.Listener.Addr().String()
	}
	for name, serve := range map[string]func(http.Handler) string{
		"nethttp": served,
		"gin": func(h http.Handler) string {
			engine := gin.New()
			engine.GET("/:x", gin.WrapH(h))
			return served(engine)
		},
		"echo": func(h http.Handler) string {
			e := echov4.New()
			e.GET("/:x", echov4.WrapHandler(h))
			return served(e)
		},
		"fiber": func(h http.Handler) string { return bridged(t, h.ServeHTTP) },
	} {
		t.Run(name, func(t *testing.T) {
			slots := make(chan struct{}, 2)
			addr := serve(few(slots, 50*time.Millisecond, http.HandlerFunc(endless)))
			for range cap(slots) {
				_, err := io.WriteString(dialTo(t, addr), "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
				require.NoError(t, err)
				<-began
			}
			require.Eventually(t, func() bool {
				resp, err := http.Get("http://" + addr + "/quick")
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp.StatusCode == http.StatusOK && len(slots) == 0
			}, hang, 10*time.Millisecond)
		})
	}
}

// Without headgate there is no page, and what there is says so.
func TestReportsOfABareGateway(t *testing.T) {
	a := start(t, "", "-bare")
	for path, want := range map[string]int{pagePath: 404, historyPath: 404, metricsPath: 404, statusPath: 200, inflightPath: 200} {
		resp, _ := a.do(http.MethodGet, path, io.Reader(nil))
		assert.Equal(t, want, resp.StatusCode, path)
	}
}
