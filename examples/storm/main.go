// Storm plays the same load against the same app twice, without headgate and with
// it, and prints what became of every request, of the bytes and of the memory.
//
//	go run ./storm -scenario bodies -report report.html
//
// Run it from the examples module: it builds the gateway of this module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func main() {
	// Whatever ends the storm, the app must be stopped and its cgroup removed: also a
	// terminal that is closed, and a pipe that nobody reads.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	scenario string
	trace    string
	report   string
	duration time.Duration
	speed    float64
	limit    int
	seed     uint64
	memory   gate.Size
	limitBy  string
	verbose  bool
}

// run is the program. It returns the exit status: 0 when the storm was played to its
// end, whatever became of the apps, 1 when it could not be, 2 for wrong arguments.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "storm:", err)
		return 2
	}
	s, results, err := play(ctx, o, env, stderr)
	if err == nil {
		err = newReport(s, o, results).publish(stdout, o.report)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		_, _ = fmt.Fprintln(stderr, "storm:", err)
		return 1
	}
	return 0
}

// parse reads the flags. The error names the flag.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{memory: 256 << 20}
	f := flag.NewFlagSet("storm", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.scenario, "scenario", "bodies", "what to play: "+names())
	f.StringVar(&o.trace, "trace", "", "play the arrivals of this CSV `file` instead of the scenario's own")
	f.StringVar(&o.report, "report", "", "write an HTML report to this `file`")
	f.DurationVar(&o.duration, "duration", 0, "how long requests arrive (default: the scenario's own, 20s of a trace)")
	f.Float64Var(&o.speed, "speed", 0, "how many seconds of a trace pass in one (default: 10, and 1 for arrival laws)")
	f.IntVar(&o.limit, "limit", 0, "at most so many requests of a trace (default: all)")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed makes the same load")
	f.TextVar(&o.memory, "memory", o.memory, "memory limit of the app, 0 = none")
	f.StringVar(&o.limitBy, "limit-by", limitAuto, "what enforces the limit: auto, cgroup or rlimit")
	f.BoolVar(&o.verbose, "v", false, "show the app's log")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(stderr)
			f.Usage()
		}
		return o, err
	}
	err := o.validate(f.Args())
	return o, err
}

func (o *options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: every option is a flag, see -h", rest[0])
	case o.duration < 0 || o.duration > time.Hour:
		return fmt.Errorf("-duration is %v: want more than 0, at most 1h", o.duration)
	case !(o.speed >= 0 && o.speed <= 1e6):
		return fmt.Errorf("-speed is %v: want more than 0, at most 1000000", o.speed)
	case o.limit < 0:
		return fmt.Errorf("-limit is %d: want at least 1, or 0 for all", o.limit)
	case o.memory != 0 && (o.memory < minMemory || o.memory > maxMemory):
		return fmt.Errorf("-memory is %v: want %v to %v, or 0 for none", o.memory, minMemory, maxMemory)
	case o.limitBy != limitAuto && o.limitBy != limitCgroup && o.limitBy != limitRlimit:
		return fmt.Errorf("-limit-by is %q: want auto, cgroup or rlimit", o.limitBy)
	case o.trace == "" && (o.speed != 0 || o.limit != 0):
		return errors.New("-speed and -limit are for a -trace")
	}
	if o.report != "" { // known now, not after the storm
		if dir, err := os.Stat(filepath.Dir(o.report)); err != nil || !dir.IsDir() {
			return fmt.Errorf("-report is %q: %s is not a directory", o.report, filepath.Dir(o.report))
		}
	}
	_, err := find(o.scenario)
	return err
}

// A Go process does not start in less, and a shell counts limits in KiB.
const (
	minMemory = gate.Size(64 << 20)
	maxMemory = gate.Size(1 << 40)
)
