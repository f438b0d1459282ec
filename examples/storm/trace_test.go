package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	azureText = "TIMESTAMP,ContextTokens,GeneratedTokens\n" +
		"2030-01-01 10:00:02.5000000,100,10\n" +
		"2030-01-01 10:00:00.0000000,50,5\n" +
		"2030-01-01 10:00:03,0,0" // no newline at the end
	mooncakeText = "arrival_ms,input_tokens,output_tokens\n0,50,5\n2500,100,10\n3000,0,0\n"
	servegenText = "tenant,window_start_s,rate_per_s,cv,family,p1,p2\n" +
		"0,0,1,1,Gamma,1,1\n" +
		"0,600,20,3,Gamma,0.1,0.5\n" +
		"1,600,10,0.5,Weibull,2.1,0.1\n" +
		"1,1200,0,1,Gamma,1,1\n"
)

func TestTokenTraces(t *testing.T) {
	for _, text := range []string{azureText, mooncakeText} {
		tr, err := readTrace("t.csv", strings.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, []arrival{
			{0, 50, 5}, {2500 * time.Millisecond, 100, 10}, {3 * time.Second, 0, 0},
		}, tr.arrivals)
		assert.Empty(t, tr.windows)

		st, err := tr.plan(nil, options{}, scenario{}, traceLength)
		require.NoError(t, err)
		assert.Equal(t, 10, int(st.speed))
		assert.Equal(t, []call{ // at ten times its speed
			{at: 0, size: 200, hold: 10 * time.Millisecond},
			{at: 250 * time.Millisecond, size: 400, hold: 20 * time.Millisecond},
			{at: 300 * time.Millisecond},
		}, st.calls)

		st, err = tr.plan(nil, options{speed: 1, limit: 2}, scenario{}, traceLength)
		require.NoError(t, err)
		assert.Len(t, st.calls, 2)
		assert.Equal(t, 2500*time.Millisecond, st.calls[1].at)
	}
}

func TestTracesFromFiles(t *testing.T) {
	for name, text := range map[string]string{"azure": azureText, "mooncake": mooncakeText, "servegen": servegenText} {
		file := filepath.Join(t.TempDir(), name+".csv")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		calls := plan(t, "-trace", file)
		assert.NotEmpty(t, calls)
		assert.Equal(t, calls, plan(t, "-trace", file), "the same seed is the same load")
		for _, c := range calls {
			assert.Less(t, c.at, traceLength)
		}
	}
}

func TestBadTraces(t *testing.T) {
	const (
		a = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
		m = "arrival_ms,input_tokens,output_tokens\n"
		s = "tenant,window_start_s,rate_per_s,cv,family,p1,p2\n"
	)
	for _, c := range []struct{ text, want string }{
		{"", "t.csv: no header: EOF"},
		{"a,b\n1,2\n", `t.csv:1: unknown header "a,b": want one of`},
		{a, "t.csv: no lines after the header"},
		{a + "2030-01-01 10:00:00,1\n", "t.csv:2: wrong number of fields"},
		{a + "2030-01-01 10:00:00,1,1\nyesterday,1,1\n", `t.csv:3: TIMESTAMP is "yesterday": want a time such as`},
		{a + "2030-01-01 10:00:00,-1,1\n", `t.csv:2: ContextTokens is "-1": want a whole number from 0 to 1000000`},
		{a + "2030-01-01 10:00:00,1,1.5\n", `t.csv:2: GeneratedTokens is "1.5"`},
		{m + "0,1,1\n\n\"0,1,1\n", "t.csv:4:"},
		{m + "soon,1,1\n", `t.csv:2: arrival_ms is "soon": want a number from 0`},
		{m + "NaN,1,1\n", `t.csv:2: arrival_ms is "NaN"`},
		{m + "0,9999999,1\n", `t.csv:2: input_tokens is "9999999"`},
		{m + "0,1," + strings.Repeat("9", 200) + "\n", `want a whole number`},
		{s + "0,0,x,1,Gamma,1,1\n", `t.csv:2: rate_per_s is "x"`},
		{s + "0,0,1,1,Normal,1,1\n", `t.csv:2: family is "Normal": want Gamma or Weibull`},
		{s + "0,0,1,1,Gamma,0,1\n", `t.csv:2: p1 is "0": want a number from 0.01`},
		{s + "0,0,1,1,Weibull,0.01,1\n", `t.csv:2: p1 is "0.01": want a number from 0.05`},
		{s + "0,0,1,-1,Gamma,1,1\n", `t.csv:2: cv is "-1"`},
		{s + "0,0,1,1,Gamma,1,0\n", `t.csv:2: p2 is "0"`},
		{s + "0,0,0,1,Gamma,1,1\n", "t.csv: no lines after the header"},
	} {
		_, err := readTrace("t.csv", strings.NewReader(c.text))
		require.Error(t, err, c.text)
		assert.Contains(t, err.Error(), c.want)
		assert.Less(t, len(err.Error()), 400, "bad input is not repeated whole")
	}
}

func TestStretchesThatCannotBePlayed(t *testing.T) {
	tr, err := readTrace("t.csv", strings.NewReader(servegenText))
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	_, err = tr.plan(r, options{trace: "t.csv"}, bodies(), time.Nanosecond)
	require.ErrorContains(t, err, "t.csv: no arrival in 1ns from 10m0s on: raise -duration or -speed")
	_, err = tr.plan(r, options{trace: "t.csv", speed: 1e6}, bodies(), time.Hour)
	require.ErrorContains(t, err, "want at most a year")

	many := &trace{speed: 1, arrivals: make([]arrival, maxCalls+1)}
	_, err = many.plan(r, options{trace: "t.csv"}, bodies(), time.Second)
	assert.ErrorContains(t, err, "200001 requests in 1s of the trace, at most 200000: use -limit")
}

// The busiest stretch, against one that looks at each beginning by itself.
func TestBusiest(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		all := make([]arrival, r.IntN(30))
		for i := range all {
			all[i] = arrival{at: time.Duration(r.IntN(40)), in: r.Int64N(10)}
		}
		slices.SortStableFunc(all, func(a, b arrival) int { return int(a.at - b.at) })
		length := time.Duration(1 + r.IntN(20))

		var want []arrival
		var most int64 = -1
		for i := range all {
			var part []arrival
			var sum int64
			for _, a := range all[i:] {
				if a.at < all[i].at+length {
					part, sum = append(part, a), sum+a.in
				}
			}
			if sum > most {
				most, want = sum, part
			}
		}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(busiest(all, length)))
	}
}

// Arrivals come at the rate of the window, whatever the law.
func TestArrivalLaws(t *testing.T) {
	for _, w := range []window{
		{rate: 50, family: "Gamma", shape: 0.2},
		{rate: 50, family: "Gamma", shape: 1},
		{rate: 50, family: "Gamma", shape: 8},
		{rate: 50, family: "Weibull", shape: 0.5},
		{rate: 50, family: "Weibull", shape: 3},
	} {
		all, from := drawArrivals(rand.New(rand.NewPCG(1, 1)), []window{w}, time.Hour)
		assert.Zero(t, from)
		assert.InEpsilon(t, 50*windowLength.Seconds(), float64(len(all)), 0.1, "%+v", w)
		last := all[len(all)-1].at
		assert.Less(t, last, windowLength)
		assert.Greater(t, last, windowLength-30*time.Second)
	}
}

func TestTheBusiestWindowIsDrawn(t *testing.T) {
	tr, err := readTrace("t.csv", strings.NewReader(servegenText))
	require.NoError(t, err)
	st, err := tr.plan(rand.New(rand.NewPCG(1, 1)), options{}, bodies(), 10*time.Second)
	require.NoError(t, err)
	assert.Equal(t, 600*time.Second, st.from)
	assert.Equal(t, 1, int(st.speed))
	assert.NotEmpty(t, st.calls)
	for _, c := range st.calls {
		assert.Equal(t, bodiesHold, c.hold)
		assert.Positive(t, c.size)
	}
	// Into the next window, where only the rate of 0 is left.
	all, _ := drawArrivals(rand.New(rand.NewPCG(1, 1)), tr.windows, 2*windowLength)
	for _, a := range all {
		assert.Less(t, a.at, 1200*time.Second)
	}
}

func FuzzReadTrace(f *testing.F) {
	for _, text := range []string{azureText, mooncakeText, servegenText, "", "a,b\n\"", "arrival_ms,input_tokens,output_tokens\n1e300,1,1\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := readTrace("t.csv", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "t.csv:") {
				t.Fatalf("does not name the file: %v", err)
			}
			return
		}
		if len(tr.arrivals)+len(tr.windows) == 0 {
			t.Fatal("neither an error nor anything to play")
		}
		last := time.Duration(0)
		for _, a := range tr.arrivals {
			if a.at < last || a.in < 0 || a.out < 0 {
				t.Fatalf("%+v after %v", a, last)
			}
			last = a.at
		}
		if len(tr.windows) > 0 {
			return
		}
		st, err := tr.plan(nil, options{}, scenario{}, traceLength)
		if err != nil {
			return
		}
		for _, c := range st.calls {
			if c.at < 0 || c.at >= traceLength || c.hold < 0 || c.size < 0 {
				t.Fatalf("%+v", c)
			}
		}
	})
}
