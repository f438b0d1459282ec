package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program prints where the page is, serves it, and ends cleanly with its load.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var complaints strings.Builder
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, nil, in, &complaints)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	for _, path := range []string{"", "status", "history"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(line)+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	require.Zero(t, <-status, complaints.String())
	require.Empty(t, complaints.String())
}

func TestRunBadArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"-h"}, 0},
		{[]string{"-no-such-flag"}, 2},
		{[]string{"-addr", "nowhere"}, 1},
	} {
		require.Equal(t, c.want, run(t.Context(), c.args, io.Discard, io.Discard), "%v", c.args)
	}
}
