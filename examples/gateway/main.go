// Command gateway is a small service as one would run it behind headgate: a byte
// budget in front of a handler that reads whole bodies into memory and of three LLM
// APIs that it passes on to a back end, one by one or in batches, tenants with keys, a
// configuration file that can be changed while it runs, and an orderly end.
//
//	go run ./gateway -addr 127.0.0.1:8080 -config gateway.yaml -upstream http://127.0.0.1:8081
//
// It prints one line, "listening on http://HOST:PORT", to standard output and
// logs to standard error. SIGTERM and SIGINT drain it: it exits with 0 when
// everything is answered, at the latest after drain_timeout, when what still runs
// is cut. A second signal ends it at once, with 1. Flags or a configuration that
// cannot work end it with 2 before it listens, a port it cannot have with 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/monitor"
)

func main() {
	// net/http's client repeats there what a back end has sent and nobody asked for.
	log.SetOutput(io.Discard)
	ctx, drain := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		drain()
		<-signals
		os.Exit(1) // asked twice: wait for nobody
	}()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	addr, framework, config, upstream string
	bare                              bool
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on; port 0 takes a free one")
	f.StringVar(&o.framework, "framework", "nethttp", "web `framework` that serves the routes: "+frameworkNames())
	f.StringVar(&o.config, "config", "", "YAML `file` over the defaults and HEADGATE_* variables, read again when it changes")
	f.StringVar(&o.upstream, "upstream", "", "`URL` that the API calls are passed on to, without /v1; none: a mock back end in this process")
	f.BoolVar(&o.bare, "bare", false, "serve the same routes without headgate, to compare")
	if err := f.Parse(args); err != nil {
		return o, err // f has told it
	}
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case frameworks[o.framework] == nil:
		err = fmt.Errorf("-framework %q: want one of %s", o.framework, frameworkNames())
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "gateway:", err)
	}
	return o, err
}

// run is the program. It returns its exit status when ctx has ended and the
// requests are drained, or earlier when it cannot work.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	g := new(gateway)
	g.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: &g.level}))
	w, err := g.open(ctx, o, getenv)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "gateway:", err)
		return 2
	}
	defer g.backend.close() // what still runs needs it until then
	if err := g.serve(ctx, o, w, stdout); err != nil {
		g.log.Error("gateway ends", "error", err)
		return 1
	}
	return 0
}

// gateway is the running service.
type gateway struct {
	log         *slog.Logger
	level       slog.LevelVar
	drain       atomic.Int64           // drain_timeout
	tenants     atomic.Pointer[roster] // never nil
	hg          *headgate.Headgate     // nil = bare
	backend     *backend
	client      atomic.Pointer[http.RoundTripper] // to the back end; see limitCalls
	turns       turns                             // of the combos that take turns
	unreachable seldom
	outbound    atomic.Pointer[outbound] // never nil

	monitorKey atomic.Pointer[string] // never nil; "" = nobody
	monitor    *monitor.Handler       // nil = bare, as is registry
	registry   *prometheus.Registry
}

// open reads the configuration and opens the gates and the way to the back end. The
// watcher is nil when there is no file to watch. After an error nothing is open.
func (g *gateway) open(ctx context.Context, o options, getenv func(string) string) (*watcher, error) {
	base, err := defaultConfig(getenv)
	if err != nil {
		return nil, err
	}
	c, w := base, (*watcher)(nil)
	if o.config != "" {
		w = &watcher{path: o.config, base: base, apply: g.apply, log: g.log}
		if c, err = w.load(); err != nil {
			return nil, err
		}
	}
	g.applyOwn(c)
	if g.backend, err = openBackend(ctx, o.upstream, getenv(upstreamKey), g.log); err != nil {
		return nil, err
	}
	if !o.bare {
		if err = g.openGates(c); err != nil {
			g.backend.close()
			return nil, err
		}
	}
	g.limitCalls(c)
	return w, nil
}

// openGates opens headgate and what its reports are read from.
func (g *gateway) openGates(c config) (err error) {
	if g.hg, err = headgate.Open(c.gates(g.log)); err != nil {
		return err
	}
	if err = g.openReports(); err != nil {
		return errors.Join(err, g.hg.Shutdown(context.Background(), nil)) // nothing waits in it yet
	}
	return nil
}

// apply puts a changed configuration in force, all of it or nothing.
func (g *gateway) apply(c config) error {
	if g.hg != nil {
		if err := g.hg.Reconfigure(c.gates(g.log)); err != nil {
			return err
		}
	}
	g.limitCalls(c)
	g.applyOwn(c)
	return nil
}

func (g *gateway) applyOwn(c config) {
	g.level.Set(c.LogLevel)
	g.drain.Store(int64(c.DrainTimeout))
	g.monitorKey.Store(&c.MonitorKey)
	g.outbound.Store(&c.Inflight)
	list := newRoster(c.Tenants)
	if before := g.tenants.Swap(&list); before == nil || len(*before) != len(list) {
		g.log.Info("tenants that may call the APIs, 0 = everybody may", "tenants", len(list))
	}
}

// serve answers requests until ctx ends, then drains.
func (g *gateway) serve(ctx context.Context, o options, w *watcher, stdout io.Writer) error {
	srv := frameworks[o.framework](g)
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", o.addr)
	if err != nil {
		g.shutdown(ctx, srv)
		return err
	}
	_, _ = fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr())

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	var watching sync.WaitGroup
	if w != nil {
		watching.Go(func() { w.run(ctx) })
	}
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
		stop()
	}
	watching.Wait() // nothing changes drain_timeout from here on
	g.shutdown(ctx, srv)
	return err
}

// shutdown refuses who waits, lets the others finish within drain_timeout, and
// cuts what is left.
func (g *gateway) shutdown(ctx context.Context, srv server) {
	timeout := time.Duration(g.drain.Load())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	g.log.Info("draining", "drain_timeout", timeout)
	var err error
	if g.hg != nil {
		err = g.hg.Shutdown(ctx, srv.Shutdown)
		g.monitor.Close()
	} else {
		err = srv.Shutdown(ctx)
	}
	if err != nil {
		g.log.Warn("not drained in time, what still runs is cut", "error", err)
		_ = srv.Close() // its listener is closed already
		return
	}
	g.log.Info("drained")
}
