package monitor

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
)

const mib = 1 << 20

// gatesConfig has all gates on and small, on a machine without files.
func gatesConfig() headgate.Config {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	c.Pressure.Root = fstest.MapFS{}
	c.Pressure.Collect = false
	c.Admission.MaxInflightBytes = 8 * mib
	c.Admission.QueueTimeout = 0
	c.Lanes.Mode = gate.Enforce
	c.Lanes.Algorithm = lanes.Fixed
	c.Lanes.InitialLimit = 10
	c.Lanes.MaxWait = 0
	c.Inflight.MaxInflight = 2
	c.Inflight.MaxQueue = 100
	return c
}

// openGates opens gates that are closed when the test ends, at the latest.
func openGates(t testing.TB, c headgate.Config) *headgate.Headgate {
	t.Helper()
	hg, err := headgate.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeGates(hg) })
	return hg
}

func closeGates(hg *headgate.Headgate) {
	hg.Bytes.Close()
	hg.Tenants.Close()
	hg.Outbound.Close()
	hg.Memory.Close()
}

func open(t testing.TB, hg *headgate.Headgate, set func(*Config)) *Handler {
	t.Helper()
	c := DefaultConfig()
	if set != nil {
		set(&c)
	}
	h, err := New(hg, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// local is a request that Loopback lets in.
func local(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "127.0.0.1:8080"
	return r
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, local(http.MethodGet, target))
	return w
}

// read decodes what h answers at target.
func read[T any](t *testing.T, h http.Handler, target string) T {
	t.Helper()
	w := get(h, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v in %s", target, err, w.Body)
	}
	return v
}

// historyOf is a history as a client reads it.
type historyOf struct {
	AgeS      []float64 `json:"age_s"`
	Admission *struct {
		Inflight []int64          `json:"inflight_bytes"`
		Max      []int64          `json:"max_inflight_bytes"`
		Sheds    map[string][]int `json:"sheds_by_reason"`
		Would    []int            `json:"would_refuse"`
	} `json:"admission"`
	Pressure *struct {
		Severity []int `json:"severity"`
	} `json:"pressure"`
	Lanes *struct {
		Limit []int64          `json:"limit"`
		Cost  []int64          `json:"inflight_cost"`
		Sheds map[string][]int `json:"sheds_by_reason"`
	} `json:"lanes"`
	Inflight *struct {
		Inflight []int64          `json:"inflight"`
		Queued   []int64          `json:"queued"`
		Sheds    map[string][]int `json:"sheds_by_reason"`
		Would    []int            `json:"would_refuse"`
		Lanes    []struct {
			Lane     string  `json:"lane"`
			Limit    []int64 `json:"limit"`
			Inflight []int64 `json:"inflight"`
			Queued   []int64 `json:"queued"`
		} `json:"lanes"`
	} `json:"inflight"`
}

// hold takes what r asks g for.
func hold(t testing.TB, g gate.Gate, r gate.Request) gate.Lease {
	t.Helper()
	l, err := g.Acquire(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Release)
	return l
}

// refused asks g for r and wants to be refused.
func refused(t testing.TB, g gate.Gate, r gate.Request) {
	t.Helper()
	if l, err := g.Acquire(context.Background(), r); err == nil {
		l.Release()
		t.Fatal("admitted, want a refusal")
	}
}

// total is the sum over all samples.
func total(n []int) (sum int) {
	for _, x := range n {
		sum += x
	}
	return sum
}

const step = 3 * time.Second
