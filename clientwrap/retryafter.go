package clientwrap

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestAfter bounds what a back end may ask for. The limiter pauses for less; this
// keeps the arithmetic from overflowing.
const longestAfter = 24 * time.Hour

// retryAfter returns how long the back end asks to be left alone, 0 or less where it does not:
// a 429 or 503 with whole seconds or a date. now is this machine's clock, which counts
// only if the answer has no date of its own.
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	v := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(longestAfter/time.Second) { // a number too large to read is one all the same
			return longestAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		now = date
	}
	return min(at.Sub(now), longestAfter) // Sub saturates
}
