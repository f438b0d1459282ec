package monitor

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// crowded returns a handler over gates of which the limiter has n lanes with a call in each.
func crowded(b *testing.B, n int) *Handler {
	b.Helper()
	hg := openGates(b, gatesConfig())
	for i := range n {
		hold(b, hg.Outbound, gate.Request{Lane: fmt.Sprintf("https://backend-%04d.example.com/v1|model", i)})
	}
	return open(b, hg, nil)
}

// What one look costs the process, with as many lanes as there can be by default.
func BenchmarkStatus(b *testing.B) {
	for _, lanes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			h := crowded(b, lanes)
			bytes := get(h, "/status").Body.Len()
			b.ReportAllocs()
			for b.Loop() {
				if get(h, "/status").Code != http.StatusOK {
					b.Fatal("no answer")
				}
			}
			b.ReportMetric(float64(bytes), "B/answer")
		})
	}
}

// What a sample costs, every Period.
func BenchmarkSample(b *testing.B) {
	for _, lanes := range []int{4, 1000} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			h := crowded(b, lanes)
			h.Close() // so that the recorder is this goroutine's
			b.ReportAllocs()
			for b.Loop() {
				h.recorder.record()
			}
		})
	}
}

// What a full history costs to read, and to keep.
func BenchmarkHistory(b *testing.B) {
	h := crowded(b, 1000)
	h.Close()
	before := heap()
	for range 1000 {
		h.recorder.record()
	}
	kept := heap() - before
	bytes := get(h, "/history").Body.Len()
	for b.Loop() {
		if get(h, "/history").Code != http.StatusOK {
			b.Fatal("no answer")
		}
	}
	b.ReportMetric(float64(bytes), "B/answer")
	b.ReportMetric(float64(kept), "B/kept")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
