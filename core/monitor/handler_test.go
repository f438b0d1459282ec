package monitor

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

func TestConfigIsLiteral(t *testing.T) {
	hg := &headgate.Headgate{}
	for _, c := range []struct {
		field string
		set   func(*Config)
	}{
		{"Period", func(c *Config) { *c = Config{} }},
		{"Period", func(c *Config) { c.Period = 0 }},
		{"Period", func(c *Config) { c.Period = 99 * time.Millisecond }},
		{"Period", func(c *Config) { c.Period = time.Minute + 1 }},
		{"History", func(c *Config) { c.History = 0 }},
		{"History", func(c *Config) { c.History = c.Period - 1 }},
		{"History", func(c *Config) { c.History = 3600*c.Period + 1 }},
		{"History", func(c *Config) { c.History = math.MaxInt64 }},
		{"Title", func(c *Config) { c.Title = strings.Repeat("x", 101) }},
		{"Title", func(c *Config) { c.Title = "\xff" }},
	} {
		config := DefaultConfig()
		c.set(&config)
		h, err := New(hg, config)
		if h != nil || err == nil || !strings.HasPrefix(err.Error(), "monitor: "+c.field+" is ") || !strings.Contains(err.Error(), "DefaultConfig") {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	for _, set := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.Period, c.History = 100*time.Millisecond, 100*time.Millisecond },
		func(c *Config) { c.Period, c.History = time.Minute, 60*time.Hour },
		func(c *Config) { c.Title = strings.Repeat("x", 100) },
	} {
		open(t, hg, set)
	}
	if h, err := New(nil, DefaultConfig()); h != nil || err == nil || !strings.Contains(err.Error(), "hg is nil") {
		t.Errorf("New(nil): %v", err)
	}
}

// What is served goes by the last element of the path, under any prefix.
func TestRoutes(t *testing.T) {
	h := open(t, openGates(t, gatesConfig()), nil)
	mux := http.NewServeMux()
	mux.Handle("/headgate/", h)
	mux.Handle("/strip/", http.StripPrefix("/strip", h))
	mux.Handle("/all/", http.StripPrefix("/all/", h))
	for _, prefix := range []string{"/headgate/", "/strip/", "/all/"} {
		for path, want := range map[string]struct {
			code              int
			contentType, part string
		}{
			"":         {200, "text/html; charset=utf-8", "<!doctype html>"},
			"status":   {200, "application/json", `"admission":{`},
			"inflight": {200, "application/json", `"enabled":true`},
			"history":  {200, "application/json", `"age_s":[`},
			"favicon":  {404, "text/plain; charset=utf-8", "want status, inflight, history"},
			"Status":   {404, "text/plain; charset=utf-8", ""},
		} {
			w := get(mux, prefix+path)
			if w.Code != want.code || w.Header().Get("Content-Type") != want.contentType || !strings.Contains(w.Body.String(), want.part) {
				t.Errorf("GET %s%s: %d %s %.200s", prefix, path, w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			if n := w.Header().Get("Content-Length"); n != fmt.Sprint(w.Body.Len()) {
				t.Errorf("GET %s%s: Content-Length %s of %d bytes", prefix, path, n, w.Body.Len())
			}
			for name, value := range map[string]string{
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
				"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := w.Header().Get(name); got != value {
					t.Errorf("GET %s%s: %s: %q", prefix, path, name, got)
				}
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") {
				t.Errorf("GET %s%s: policy %q", prefix, path, csp)
			}
		}
	}
}

func TestMethods(t *testing.T) {
	h := open(t, openGates(t, gatesConfig()), nil)
	for _, path := range []string{"/", "/status", "/inflight", "/history", "/nothing"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, local(http.MethodHead, path))
		like := get(h, path)
		if w.Code != like.Code || w.Body.Len() != 0 || w.Header().Get("Content-Type") != like.Header().Get("Content-Type") {
			t.Errorf("HEAD %s: %d, %d bytes; GET answers %d", path, w.Code, w.Body.Len(), like.Code)
		}
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, local(method, path))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func keysOf(t *testing.T, b []byte) map[string][]string {
	t.Helper()
	var parts map[string]map[string]any
	if err := json.Unmarshal(b, &parts); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	keys := map[string][]string{}
	for name, part := range parts {
		keys[name] = slices.Sorted(maps.Keys(part))
	}
	return keys
}

// status has the shape of headgate.Snapshot, whatever becomes of that.
func TestStatusIsTheSnapshot(t *testing.T) {
	hg := openGates(t, gatesConfig())
	h := open(t, hg, nil)
	want, err := json.Marshal(hg.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	got := get(h, "/status").Body.Bytes()
	if g, w := keysOf(t, got), keysOf(t, want); fmt.Sprint(g) != fmt.Sprint(w) {
		t.Errorf("status has\n%v\nwant\n%v", g, w)
	}
	lease := hold(t, hg.Outbound, gate.Request{Lane: "llm"})
	defer lease.Release()
	if s := read[inflight.Snapshot](t, h, "/inflight"); len(s.Lanes) != 1 || s.Lanes[0].Lane != "llm" || s.Lanes[0].Inflight != 1 {
		t.Errorf("inflight: %+v", s)
	}
}

// A gate that there is not is absent, from one to all of them.
func TestGatesThatThereAreNot(t *testing.T) {
	full := openGates(t, gatesConfig())
	names := []string{"admission", "inflight", "lanes", "pressure"}
	for mask := range 1 << len(names) {
		hg, want := headgate.Headgate{}, []string{}
		for i, name := range names {
			if mask&(1<<i) == 0 {
				continue
			}
			want = append(want, name)
			switch name {
			case "admission":
				hg.Bytes = full.Bytes
			case "inflight":
				hg.Outbound = full.Outbound
			case "lanes":
				hg.Tenants = full.Tenants
			case "pressure":
				hg.Memory = full.Memory
			}
		}
		h := open(t, &hg, nil)
		if got := slices.Sorted(maps.Keys(read[map[string]any](t, h, "/status"))); !slices.Equal(got, want) {
			t.Errorf("status has %v, want %v", got, want)
		}
		past := read[map[string]any](t, h, "/history")
		for _, name := range names {
			if _, ok := past[name]; ok != slices.Contains(want, name) {
				t.Errorf("gates %v: history has %s: %v", want, name, ok)
			}
		}
		if hg.Outbound == nil {
			if got := get(h, "/inflight").Body.String(); got != "{\"enabled\":false}\n" {
				t.Errorf("inflight: %s", got)
			}
		}
		h.Close()
	}
}

// The handler goes by the gates that there were when it was made.
func TestGatesAreThoseOfNew(t *testing.T) {
	hg := openGates(t, gatesConfig())
	mine := *hg
	h := open(t, &mine, nil)
	mine.Bytes, mine.Outbound = nil, nil
	if got := read[map[string]any](t, h, "/status"); got["admission"] == nil || got["inflight"] == nil {
		t.Errorf("status has %v", slices.Sorted(maps.Keys(got)))
	}
}

func TestReportsOutliveTheGates(t *testing.T) {
	hg := openGates(t, gatesConfig())
	h := open(t, hg, nil)
	closeGates(hg)
	h.Close()
	h.Close()
	for _, path := range []string{"/", "/status", "/inflight", "/history"} {
		if w := get(h, path); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	hg := openGates(t, gatesConfig())
	h := open(t, hg, func(c *Config) { c.Period, c.History = 100*time.Millisecond, time.Second })
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			for j := range 10 {
				if l, err := hg.Outbound.Acquire(t.Context(), gate.Request{Lane: fmt.Sprint("lane", i, j)}); err == nil {
					l.Release()
				}
				for _, path := range []string{"/status", "/history"} {
					if w := get(h, path); w.Code != http.StatusOK {
						t.Errorf("%s: %d", path, w.Code)
					}
				}
			}
		})
	}
	all.Wait()
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(h.Close)
	}
	closers.Wait()
}
