package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// abort cuts the connection, with a reset where so is said.
func abort(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		err = errors.Join(err, tcp.SetLinger(0))
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		panic(err) // net/http logs it, and the client sees something else
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, _ := io.Copy(h, r.Body)
	fmt.Fprintf(w, `{"bytes": %d, "sha256": %q}`, n, hex.EncodeToString(h.Sum(nil)))
}

func TestWhatBecameOfACall(t *testing.T) {
	say := func(status int, reason, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if reason != "" {
				w.Header().Set("Headgate-Reason", reason)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	for _, c := range []struct {
		name    string
		serve   http.HandlerFunc
		verdict verdict
		why     string
	}{
		{"answers", echo, answered, ""},
		{"refuses", say(503, "queue_timeout", "{}"), refused, "queue_timeout"},
		{"refuses unread", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Headgate-Reason", "payload_too_large")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}, refused, "payload_too_large"},
		{"fails", say(500, "", "oh"), wrong, "status 500"},
		{"503 of its own", say(503, "", "busy"), wrong, "status 503"},
		{"other text", say(200, "", "hello"), wrong, "not an echo"},
		{"empty object", say(200, "", "{}"), wrong, "not an echo"},
		{"other length", say(200, "", `{"bytes": 1}`), wrong, "byte count"},
		{"other digest", say(200, "", `{"bytes": 100000, "sha256": "00"}`), wrong, "digest"},
		{"hangs up", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			abort(w, false)
		}, lost, "connection closed"},
		{"resets", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			abort(w, true)
		}, lost, "connection reset"},
		{"cut short", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"bytes": 100000,`)
			_ = http.NewResponseController(w).Flush()
			abort(w, false)
		}, lost, "connection closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/echo", r.URL.Path)
				assert.Equal(t, "20ms", r.URL.Query().Get("hold"))
				assert.Equal(t, int64(100_000), r.ContentLength)
				c.serve(w, r)
			}))
			defer server.Close()
			o, cl := one(t, server.URL, 100_000)
			assert.Equal(t, c.verdict, o.verdict, o.why)
			assert.Equal(t, c.why, o.why)
			assert.Positive(t, o.took)
			now, peak := cl.flight.read()
			assert.Zero(t, now, "nothing is in flight when all is over")
			assert.LessOrEqual(t, peak, int64(100_000))
		})
	}
}

// one sends one call.
func one(t *testing.T, url string, size int64) (outcome, *client) {
	t.Helper()
	p := newPool(1)
	calls := []call{{hold: 20 * time.Millisecond, size: size}}
	p.complete(rand.New(rand.NewPCG(1, 1)), calls)
	c := newClient(url, p)
	t.Cleanup(c.close)
	ends := c.do(t.Context(), calls[0], time.Now())
	require.Len(t, ends, 1)
	return ends[0], c
}

func TestEmptyBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Zero(t, r.ContentLength)
		echo(w, r)
	}))
	defer server.Close()
	o, _ := one(t, server.URL, 0)
	assert.Equal(t, answered, o.verdict, o.why)
}

func TestNobodyListens(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	o, _ := one(t, server.URL, 10)
	assert.Equal(t, outcome{verdict: lost, why: "connection refused"}, outcome{verdict: o.verdict, why: o.why})
}

func TestCauseOfTimeout(t *testing.T) {
	assert.Equal(t, "timeout", cause(fmt.Errorf("wrapped: %w", context.DeadlineExceeded)))
	assert.Equal(t, "other", cause(context.Canceled))
}

// What is sent is in flight from its sending to the end of the call, and no longer.
func TestFlight(t *testing.T) {
	var f flight
	a := &counted{r: strings.NewReader("12345"), flight: &f}
	b := &counted{r: strings.NewReader("123"), flight: &f}
	_, err := io.ReadAll(a)
	require.NoError(t, err)
	_, err = io.ReadFull(b, make([]byte, 2))
	require.NoError(t, err)
	now, peak := f.read()
	assert.Equal(t, []int64{7, 7}, []int64{now, peak})
	a.done()
	a.done()
	_, err = io.ReadAll(b)
	require.NoError(t, err)
	b.done()
	_, err = b.Read(make([]byte, 1)) // the transport reads on
	require.ErrorIs(t, err, io.EOF)
	now, peak = f.read()
	assert.Equal(t, []int64{0, 7}, []int64{now, peak})
}

// An answer that is late delays no other call.
func TestRainIsOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		calls := []call{{at: 0}, {at: time.Second}, {at: time.Second}, {at: 3 * time.Second}}
		got := rain(t.Context(), calls, func(_ context.Context, k call, due time.Time) outcome {
			assert.Equal(t, k.at, time.Since(begin), "sent when it is due")
			assert.Equal(t, begin.Add(k.at), due)
			time.Sleep(time.Hour)
			return outcome{at: k.at, took: time.Since(due), verdict: answered}
		})
		assert.Equal(t, time.Hour+3*time.Second, time.Since(begin))
		for i, k := range calls {
			assert.Equal(t, outcome{at: k.at, took: time.Hour, verdict: answered}, got[i])
		}
	})
}

func TestRainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		got := rain(ctx, []call{{at: 0}, {at: time.Hour}}, func(ctx context.Context, _ call, _ time.Time) outcome {
			<-ctx.Done()
			return outcome{verdict: lost}
		})
		assert.Equal(t, time.Second, time.Since(begin))
		assert.Len(t, got, 2)
	})
}
