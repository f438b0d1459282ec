package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 1000)
	for _, c := range []struct {
		late, rate time.Duration
		want       time.Duration
	}{
		{0, 0, 0},
		{0, 1000, 10 * time.Second},
		{4 * time.Second, 1000, 6 * time.Second}, // the rest
		{time.Minute, 1000, 0},                   // it has piled up
	} {
		synctest.Test(t, func(t *testing.T) {
			due := time.Now()
			time.Sleep(c.late)
			begin := time.Now()
			got, err := io.ReadAll(pace(t.Context(), bytes.NewReader(body), 10_000, int64(c.rate), due))
			require.NoError(t, err)
			assert.Equal(t, body, got)
			took := time.Since(begin)
			assert.InDelta(t, c.want, took, float64(time.Microsecond))
		})
	}
}

func TestPaceIsNeverAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := pace(t.Context(), bytes.NewReader(make([]byte, 5000)), 5000, 1000, begin)
		reads, read, b := 0, 0, make([]byte, 700)
		for {
			n, err := r.Read(b)
			reads, read = reads+1, read+n
			assert.LessOrEqual(t, float64(read), time.Since(begin).Seconds()*1000+0.01)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
		}
		assert.Equal(t, 5000, read)
		assert.LessOrEqual(t, reads, 102, "not byte by byte: a read for each 50 ms, and the end")
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := io.ReadAll(pace(ctx, bytes.NewReader(make([]byte, 1<<20)), 1<<20, 1, time.Now()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
