// Command app is the app of the storm in front of which stands another library's middleware
// instead of headgate's: POST /echo reads the body into memory, holds it, and answers
// its size and digest, as the gateway in examples does. The storm builds and starts it:
//
//	go run ./storm -scenario bodies -against chi,failsafe,gozero    # in the module examples
//
// By itself, in this module's directory:
//
//	GOWORK=off go run ./cmd/app -with chi -limit 4 -backlog 1024 -wait 60s
//
// It prints one line, "listening on http://HOST:PORT", to standard output and drains
// on SIGTERM and SIGINT. It exits with 0 when everything is answered, with 1 when it
// cannot serve or is not drained in time, with 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// drainTime is how long requests may go on after the signal to stop.
const drainTime = 10 * time.Second

// options are the flags.
type options struct {
	addr string
	with string
	room room
}

// run is the program. It returns the exit status when ctx has ended and the requests
// are drained, or earlier when it cannot work.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	var p peer
	if err == nil {
		p, err = find(o.with)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "app:", err)
		return 2
	}
	a := &app{with: o.with, limit: o.room.limit}
	if err := serve(ctx, o.addr, a.handler(p.wrap(o.room)), stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "app:", err)
		return 1
	}
	return 0
}

// parse reads the flags. The error names the flag.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("app", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.addr, "addr", "127.0.0.1:0", "`host:port` to listen on; port 0 takes a free one, see the line")
	f.StringVar(&o.with, "with", "", "whose middleware: "+names())
	f.IntVar(&o.room.limit, "limit", 0, "how many requests it lets in at once; needed")
	f.IntVar(&o.room.backlog, "backlog", 1024, "how many may wait (chi; the bulkhead of failsafe does not bound it, gozero lets nobody wait)")
	f.DurationVar(&o.room.wait, "wait", time.Minute, "how long one may wait (chi, failsafe)")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(stderr)
			f.Usage()
		}
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: every option is a flag, see -h", f.Arg(0))
	case o.room.limit < 1:
		return o, fmt.Errorf("-limit is %d: want at least 1", o.room.limit)
	case o.room.backlog < 0:
		return o, fmt.Errorf("-backlog is %d: want at least 0", o.room.backlog)
	case o.room.wait <= 0:
		return o, fmt.Errorf("-wait is %v: want more than 0", o.room.wait)
	}
	return o, nil
}

// serve answers requests until ctx ends, then drains.
func serve(ctx context.Context, addr string, h http.Handler, stdout io.Writer) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	// The bounds of the gateway's server.
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	_, _ = fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		_ = srv.Close() // its listener is closed already
		return fmt.Errorf("not drained in %v: %w", drainTime, err)
	}
	return nil
}
