package monitor

import (
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// Config is what a Handler is made of. Values are literal: start from [DefaultConfig].
// A field that is out of range is an error of New which names it.
type Config struct {
	// Authorize says whether a request may see the reports. It is called for each request,
	// before anything else, from the request's goroutine. Default nil: [Loopback].
	Authorize func(*http.Request) bool `yaml:"-"`
	// Period is the time between two samples of the history, 100ms to 1m. Default 3s. 0 is
	// an error.
	Period time.Duration `yaml:"period"`
	// History is how far back the history goes: Period to 3600 times Period. Default 15m.
	// 0 is an error.
	History time.Duration `yaml:"history"`
	// Title is the name of the process on the page, at most 100 bytes. Default "": the page
	// says the host that it was asked from.
	Title string `yaml:"title"`
}

// DefaultConfig returns the defaults that the fields name.
func DefaultConfig() Config {
	return Config{Period: 3 * time.Second, History: 15 * time.Minute}
}

const (
	// mostSamples bounds the memory of a history.
	mostSamples = 3600
	// mostTitle bounds a title, in bytes.
	mostTitle = 100
)

// Validate returns an error that names the first field that is out of range, or nil. New
// calls it.
func (c Config) Validate() error {
	switch {
	case c.Period < 100*time.Millisecond || c.Period > time.Minute:
		return fail("Period", c.Period, "want 100ms to 1m")
	case c.History < c.Period || c.History > mostSamples*c.Period:
		return fail("History", c.History, fmt.Sprintf("want Period to %d times Period, %v", mostSamples, mostSamples*c.Period))
	case len(c.Title) > mostTitle || !utf8.ValidString(c.Title):
		return fail("Title", fmt.Sprintf("%.40q", c.Title), fmt.Sprintf("want valid UTF-8 of at most %d bytes", mostTitle))
	}
	return nil
}

func fail(field string, value any, want string) error {
	return fmt.Errorf("monitor: %s is %v: %s (DefaultConfig has working values)", field, value, want)
}
