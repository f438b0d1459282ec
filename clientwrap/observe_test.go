package clientwrap_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Everybody who holds the request hears once how it went, the call's own lane too.
func TestObserve(t *testing.T) {
	for name, test := range map[string]struct {
		base roundTrip
		want gate.Sample
	}{
		"answered": {hello, gate.Sample{FirstByte: time.Second, Status: 200}},
		"no body": {func(r *http.Request) (*http.Response, error) { return answer(r, 204, http.NoBody), nil },
			gate.Sample{FirstByte: time.Second, Status: 204}},
		"server error": {func(r *http.Request) (*http.Response, error) { return answer(r, 500, text("x")), nil },
			gate.Sample{FirstByte: time.Second, Status: 500}},
		"failed": {func(*http.Request) (*http.Response, error) { return nil, errBase }, gate.Sample{Err: errBase}},
	} {
		for _, c := range []clientwrap.Config{{}, {MaxHold: time.Hour}, {ReleaseAtHeaders: true}, {ReleaseAtHeaders: true, MaxHold: time.Hour}} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := slots(t, 2)
					seen := new(recorder)
					tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
						time.Sleep(time.Second)
						return test.base(r)
					}), l, c)
					for range 10 {
						for range 2 { // the wait is not the back end's time
							time.AfterFunc(5*time.Second, hold(t, l))
						}
						resp, err := tr.RoundTrip(request(t, seen.in(context.Background()), nil))
						assert.Equal(t, []gate.Sample{test.want}, seen.observed())
						if err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							require.NoError(t, resp.Body.Close())
						}
						assert.Empty(t, seen.observed())
					}
					degraded := test.want.Err != nil || test.want.Status >= 500
					assert.Equal(t, degraded, lane(t, l).Verdict == inflight.UpstreamDegraded, "the lane has heard of it")
					l.Close()
				})
			})
		}
	}
}

// The back end's pause is taken from 429 and 503 alone, and never for longer than a
// minute. (G6)
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		date := func(d time.Duration) string { return now.Add(d).UTC().Format(http.TimeFormat) }
		for _, test := range []struct {
			status      int
			after, date string
			want        time.Duration
		}{
			{429, "120", "", time.Minute},
			{503, "30", "", 30 * time.Second},
			{529, "30", "", 0},
			{500, "30", "", 0},
			{200, "30", "", 0},
			{429, "", "", 0},
			{429, "0", "", 0},
			{429, "-1", "", 0},
			{429, "+5", "", 0},
			{429, "1.5", "", 0},
			{429, "1e3", "", 0},
			{429, "abc", "", 0},
			{429, " 5 ", "", 5 * time.Second},
			{429, "007", "", 7 * time.Second},
			{429, "9223372036", "", time.Minute},
			{429, "9223372037", "", time.Minute},
			{429, "9223372036854775807", "", time.Minute},
			{429, "18446744073709551616", "", time.Minute},
			{429, date(time.Hour), "", time.Minute},
			{429, date(20 * time.Second), "", 20 * time.Second},
			{429, date(-time.Hour), "", 0},
			{429, "Fri, 31 Dec 9999 23:59:59 GMT", "", time.Minute},
			{429, "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", time.Minute},
			{429, date(time.Hour + 20*time.Second), date(time.Hour), 20 * time.Second}, // the back end's clock is fast
			{429, date(20 * time.Second), "yesterday", 20 * time.Second},
			{503, "Friday, 31-Dec-99 23:59:59 GMT", "Friday, 31-Dec-99 23:59:50 GMT", 9 * time.Second}, // RFC 850
		} {
			l := slots(t, 1)
			tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				resp := answer(r, test.status, http.NoBody)
				if test.after != "" {
					resp.Header.Set("Retry-After", test.after)
				}
				if test.date != "" {
					resp.Header.Set("Date", test.date)
				}
				return resp, nil
			}), l, clientwrap.Config{})
			_, err := tr.RoundTrip(request(t, context.Background(), nil))
			require.NoError(t, err)
			assert.InDelta(t, test.want.Seconds(), float64(lane(t, l).PausedS), 0.001, "%+v", test)
			l.Close()
		}
	})
}

// The lane hears of the pause before it gives away the slot of the answer.
func TestPauseBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		begin := time.Now()
		first := true
		tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			resp := answer(r, 200, http.NoBody)
			if first {
				first = false
				time.Sleep(time.Second)
				resp.StatusCode = http.StatusTooManyRequests
				resp.Header.Set("Retry-After", "9")
			}
			return resp, nil
		}), l, clientwrap.Config{})
		go func() { _, _ = tr.RoundTrip(request(t, context.Background(), nil)) }()
		synctest.Wait()
		_, err := tr.RoundTrip(request(t, context.Background(), nil)) // waits for the first
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(begin))
		l.Close()
	})
}

// What SDKs say of their attempts is counted.
func TestStainlessRetryCount(t *testing.T) {
	l := slots(t, 1)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	for _, v := range []string{"", "0", "1", "2", "x", "-1"} {
		r := request(t, context.Background(), nil)
		if v != "" {
			r.Header.Set("X-Stainless-Retry-Count", v)
		}
		resp, err := tr.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	assert.EqualValues(t, 2, lane(t, l).Retries)
}

// A timeout around the client cuts no body that is still read within it. (G15)
func TestBodyAfterRoundTrip(t *testing.T) {
	const size = 5 << 20
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range size >> 10 {
			_, _ = w.Write(make([]byte, 1<<10))
		}
	})
	l := slots(t, 1)
	for _, c := range []clientwrap.Config{{}, {MaxHold: guard}, {MaxHold: guard, ReleaseAtHeaders: true}} {
		client := clientOf(t, s, l, c)
		client.Timeout = guard
		resp := mustGet(t, context.Background(), client, s.URL)
		assert.Len(t, readAll(t, resp.Body), size)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 0, inFlight(l))
	}
}
