package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a token is worth.
const (
	bytesPerToken = 4
	decodeTime    = 20 * time.Millisecond
)

// maxCalls bounds a plan: bodies are hashed before the storm and every request is a
// goroutine while it lasts.
const maxCalls = 200_000

// trace is what a file says: arrivals, or the laws to draw them from.
type trace struct {
	arrivals []arrival // by time, from 0
	windows  []window
	speed    float64 // unless -speed says otherwise
}

// arrival is a request of a trace.
type arrival struct {
	at      time.Duration
	in, out int64 // tokens
}

// format is one form of trace file, told by its header.
type format struct {
	header string
	// read adds one line to t.
	read func(t *trace, l *line)
	// speed is the default. An hour of tokens is played ten times as fast, answers
	// too, which leaves the number and bytes in flight as they were. Arrival laws
	// say nothing of how long an answer takes, so they keep their own time.
	speed float64
}

func formats() []format {
	return []format{
		{"TIMESTAMP,ContextTokens,GeneratedTokens", readAzure, 10},
		{"arrival_ms,input_tokens,output_tokens", readMooncake, 10},
		{"tenant,window_start_s,rate_per_s,cv,family,p1,p2", readServegen, 1},
	}
}

func openTrace(file string) (*trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("-trace: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	return readTrace(file, f)
}

// readTrace reads a trace of any form. The error names the file, and the line and
// field that are wrong.
func readTrace(file string, r io.Reader) (*trace, error) {
	c := csv.NewReader(bufio.NewReader(r))
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: no header: %w", file, err)
	}
	var known []string
	for _, f := range formats() {
		if f.header == strings.Join(header, ",") {
			return f.readAll(file, c)
		}
		known = append(known, f.header)
	}
	return nil, fmt.Errorf("%s:1: unknown header %.100q: want one of\n  %s", file, strings.Join(header, ","), strings.Join(known, "\n  "))
}

func (f format) readAll(file string, c *csv.Reader) (*trace, error) {
	t := &trace{speed: f.speed}
	names := strings.Split(f.header, ",")
	for {
		fields, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if p := (*csv.ParseError)(nil); errors.As(err, &p) {
			return nil, fmt.Errorf("%s:%d: %w", file, p.Line, p.Err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		l := line{names: names, fields: fields}
		f.read(t, &l)
		if l.err != nil {
			at, _ := c.FieldPos(0)
			return nil, fmt.Errorf("%s:%d: %w", file, at, l.err)
		}
	}
	if len(t.arrivals) == 0 && len(t.windows) == 0 {
		return nil, fmt.Errorf("%s: no lines after the header", file)
	}
	slices.SortStableFunc(t.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	if len(t.arrivals) > 0 {
		first := t.arrivals[0].at
		for i := range t.arrivals {
			t.arrivals[i].at -= first
		}
	}
	return t, nil
}

// line reads fields of a CSV line by name and keeps the first error.
type line struct {
	names, fields []string
	err           error
}

func (l *line) text(name string) string { return l.fields[slices.Index(l.names, name)] }

func (l *line) fail(name, want string) {
	if l.err == nil {
		l.err = fmt.Errorf("%s is %.40q: want %s", name, l.text(name), want)
	}
}

// number returns a field that must be least to most.
func (l *line) number(name string, least, most float64) float64 {
	n, err := strconv.ParseFloat(l.text(name), 64)
	if err != nil || !(n >= least && n <= most) {
		l.fail(name, fmt.Sprintf("a number from %g to %g", least, most))
		return least
	}
	return n
}

// tokens returns a field that counts tokens.
func (l *line) tokens(name string) int64 {
	const most = 1_000_000
	n, err := strconv.ParseInt(l.text(name), 10, 64)
	if err != nil || n < 0 || n > most {
		l.fail(name, fmt.Sprintf("a whole number from 0 to %d", most))
		return 0
	}
	return n
}

func readAzure(t *trace, l *line) {
	at, err := time.Parse(time.DateTime, l.text("TIMESTAMP")) // takes fractions too
	if err != nil || at.Year() < 1970 || at.Year() > 2200 {   // a Duration holds 292 years
		l.fail("TIMESTAMP", "a time such as "+time.DateTime+".1234567")
		return
	}
	t.arrivals = append(t.arrivals, arrival{
		at: at.Sub(azureEpoch()), in: l.tokens("ContextTokens"), out: l.tokens("GeneratedTokens"),
	})
}

// azureEpoch makes times differences; which one is of no matter, as a trace starts
// at its first arrival.
func azureEpoch() time.Time { return time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC) }

func readMooncake(t *trace, l *line) {
	const year = 366 * 24 * 3600 * 1000
	t.arrivals = append(t.arrivals, arrival{
		at: time.Duration(l.number("arrival_ms", 0, year) * float64(time.Millisecond)),
		in: l.tokens("input_tokens"), out: l.tokens("output_tokens"),
	})
}

// stretch is the part of a trace that is played.
type stretch struct {
	calls  []call
	from   time.Duration // where it begins in the trace
	length time.Duration // in the trace's time
	speed  float64
}

// plan makes the calls of the busiest stretch of t, by bytes, that is over within
// length at the speed of o.
func (t *trace) plan(r *rand.Rand, o options, s scenario, length time.Duration) (stretch, error) {
	st := stretch{speed: cmp.Or(o.speed, t.speed)}
	span := float64(length) * st.speed
	if span > float64(366*24*time.Hour) {
		return st, fmt.Errorf("-duration %v at -speed %v is %.0f hours of the trace: want at most a year", length, st.speed, span/float64(time.Hour))
	}
	st.length = time.Duration(span)
	var part []arrival
	if len(t.windows) > 0 {
		part, st.from = drawArrivals(r, t.windows, st.length)
	} else {
		part = busiest(t.arrivals, st.length)
		if len(part) > 0 {
			st.from = part[0].at
		}
	}
	if o.limit > 0 && len(part) > o.limit {
		part = part[:o.limit]
	}
	switch {
	case len(part) == 0:
		return st, fmt.Errorf("%s: no arrival in %v from %v on: raise -duration or -speed", o.trace, st.length, st.from)
	case len(part) > maxCalls:
		return st, fmt.Errorf("%s: %d requests in %v of the trace, at most %d: use -limit, or lower -duration or -speed", o.trace, len(part), st.length, maxCalls)
	}
	st.calls = make([]call, len(part))
	for i, a := range part {
		st.calls[i] = call{
			at:   time.Duration(float64(a.at-st.from) / st.speed),
			size: a.in * bytesPerToken,
			hold: time.Duration(float64(a.out) * float64(decodeTime) / st.speed),
		}
	}
	if len(t.windows) > 0 { // no tokens in these
		for i, size := range s.sizes.draw(r, len(st.calls)) {
			st.calls[i].size, st.calls[i].hold = size, s.hold
		}
	}
	return st, nil
}

// busiest returns the arrivals of the stretch of this length that has the most
// tokens to read, the first of equals.
func busiest(all []arrival, length time.Duration) []arrival {
	var best, sum int64 = -1, 0
	var from, to int
	for i, j := 0, 0; i < len(all); i++ {
		for j < len(all) && all[j].at-all[i].at < length {
			sum += all[j].in
			j++
		}
		if sum > best {
			best, from, to = sum, i, j
		}
		sum -= all[i].in
	}
	return all[from:to]
}
