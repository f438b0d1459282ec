// Command monitor serves the live page of core/monitor over gates that are kept busy, to
// look at. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/monitor"
)

// grace is how long the end may take.
const grace = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends. It returns the exit status: 0, 1 where it cannot serve, 2
// where args are wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("monitor", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2 // Parse has said why
	}
	if err := serve(ctx, *addr, stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "monitor:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, addr string, stdout io.Writer) error {
	hg, err := headgate.Open(config())
	if err != nil {
		return err
	}
	c := monitor.DefaultConfig()
	c.Title = "demo"
	m, err := monitor.New(hg, c)
	if err != nil {
		return errors.Join(err, hg.Shutdown(ctx, nil))
	}
	defer m.Close()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(err, hg.Shutdown(ctx, nil))
	}
	mux := http.NewServeMux()
	mux.Handle("/headgate/", m)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	_, _ = fmt.Fprintf(stdout, "http://%s/headgate/\n", ln.Addr())

	over := startLoad(ctx, hg)
	select {
	case <-ctx.Done():
	case err = <-served: // it never ends well by itself
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, hg.Shutdown(end, srv.Shutdown), over(end))
}

// config has limits so small that the load meets all of them.
func config() headgate.Config {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	c.Admission.MaxInflightBytes = 64 << 20
	c.Admission.HardMaxBodyBytes = 16 << 20
	c.Admission.QueueTimeout = 2 * time.Second
	c.Admission.MaxWaiters = 24
	c.Lanes.Mode = gate.Enforce
	c.Lanes.VirtualLanes = true
	c.Lanes.MaxQueueCount = 12
	c.Inflight.MaxInflight = 8
	c.Inflight.MaxQueue = 40
	c.Inflight.QueueTimeout = 6 * time.Second
	c.Inflight.SlowWait = time.Second // so that a short queue has a verdict
	return c
}
