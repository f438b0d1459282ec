//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An app that dies breaks pipes: a write to a connection that it had raises SIGPIPE.
// That must not end the storm, which goes on to count what is lost.
func TestABrokenPipeIsNotTheEnd(t *testing.T) {
	ctx, stop := untilSignal(t.Context())
	defer stop()
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGPIPE)
	defer signal.Stop(seen)

	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(pair[1]))
	_, err = syscall.Write(pair[0], []byte("body"))
	require.ErrorIs(t, err, syscall.EPIPE)
	require.NoError(t, syscall.Close(pair[0]))
	<-seen
	for range 1000 { // it would end in a goroutine of its own
		runtime.Gosched()
	}
	require.NoError(t, ctx.Err())

	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	assert.NotContains(t, context.Cause(ctx).Error(), syscall.SIGPIPE.String()) // Go 1.26 and later say which signal it was
}
