package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilSignal returns a context that ends when the storm is to end. Whatever ends it,
// the app must be stopped and its cgroup removed: also a terminal that is closed.
//
// A pipe that nobody reads any more must not kill the storm either. Its signal is
// caught, and the write then fails with an error. It must not end the context: a
// connection to an app that has died raises it too.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	pipes := make(chan os.Signal, 1) // never read
	signal.Notify(pipes, syscall.SIGPIPE)
	ctx, cancel := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return ctx, func() {
		cancel()
		signal.Stop(pipes)
	}
}

// sharedWriter is for several goroutines. When a write fails it calls broken: nobody
// is there any more to read how the storm goes.
type sharedWriter struct {
	to     io.Writer
	broken func()

	mu sync.Mutex
}

func (w *sharedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	n, err := w.to.Write(b)
	w.mu.Unlock()
	if err != nil {
		w.broken()
	}
	return n, err
}
