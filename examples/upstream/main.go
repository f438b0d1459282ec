// Command upstream is a mock LLM back end with a given speed and capacity, to play
// the slow side of a test. See README.md.
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
	"strconv"
	"syscall"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
)

// grace is how long calls may go on after the signal to stop.
const grace = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends. It returns the exit status: 0, 1 where it cannot serve, 2
// where args are wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	complain := func(err error) { _, _ = fmt.Fprintln(stderr, "upstream:", err) }
	addr, config, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(err)
		return 2
	}
	backend, err := upstream.New(config)
	if err != nil {
		complain(err)
		return 2
	}
	defer backend.Close()
	if err := serve(ctx, addr, backend, stdout); err != nil {
		complain(err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (addr string, c upstream.Config, err error) {
	c = upstream.DefaultConfig()
	flags := flag.NewFlagSet("upstream", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the errors are printed below, without all the flags
	flags.StringVar(&addr, "addr", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	flags.IntVar(&c.Capacity, "capacity", c.Capacity, "calls served at full speed; more wait, first come first served")
	flags.DurationVar(&c.Service, "service", c.Service, "mean time that a call takes")
	flags.Float64Var(&c.Jitter, "jitter", c.Jitter, "spread of that time, 0.2 for 20% either way")
	flags.Uint64Var(&c.Seed, "seed", c.Seed, "decides the times: same seed, same times")
	flags.BoolVar(&c.Collapse, "collapse", c.Collapse, "over capacity, serve all at once and all slower, also those whose client left")
	flags.DurationVar(&c.RetryAfter, "retry-after", c.RetryAfter, "over capacity, answer 429 with this Retry-After")
	flags.IntVar(&c.Tokens, "tokens", c.Tokens, "tokens of an answer that its request does not bound")
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stderr)
		flags.Usage()
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: every option is a flag, see -h", flags.Arg(0))
	default:
		err = validAddr(addr)
	}
	return addr, c, err
}

// validAddr finds what is no address to listen on. Of the empty one net/http would make all
// interfaces, for everybody.
func validAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("addr %q: want host:port, with a port of 0 to 65535", addr)
	}
	return nil
}

// serve serves backend on addr until ctx ends, then cuts what runs for longer than grace.
func serve(ctx context.Context, addr string, backend http.Handler, stdout io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: backend, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	if _, err := fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr()); err != nil {
		return errors.Join(err, srv.Close())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if srv.Shutdown(last) != nil {
		return srv.Close()
	}
	return nil
}
