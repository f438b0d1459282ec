// Command storm plays the same load against the same app without headgate, with it, or with
// other libraries in its place. It prints what became of every
// request, of the bytes and of the memory.
//
//	go run ./storm -scenario bodies -report report.html
//	go run ./storm -scenario memory
//	go run ./storm -scenario retry
//	go run ./storm -scenario tenants
//	go run ./storm -scenario trace -trace tenants.csv
//	go run ./storm -scenario all -against chi,failsafe,gozero -json results.json
//
// Run it from the examples module: it builds the gateway of this module, and for
// -against the command app of the module examples/versus. The table goes to standard
// output, how it goes meanwhile to standard error. README.md says what is played and
// what the numbers are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func main() {
	ctx, stop := untilSignal(context.Background())
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	scenario  string
	against   string
	peerLimit int
	trace     string
	report    string
	json      string
	duration  time.Duration
	speed     float64
	limit     int
	seed      uint64
	memory    gate.Size
	limitBy   string
	quiet     bool
	verbose   bool
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shared := &sharedWriter{to: stderr, broken: cancel}
	var p progress
	if !o.quiet {
		p = progress{to: shared, live: isTerminal(stderr) && !o.verbose}
	}
	var log io.Writer
	if o.verbose {
		log = shared
	}
	storms, err := play(ctx, o, env, p, log)
	if err == nil {
		err = publish(o, storms, stdout)
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
	f.StringVar(&o.against, "against", "", "play it also against the app with other libraries in place of headgate: `names` of "+peerNames()+", with commas between")
	f.IntVar(&o.peerLimit, "peer-limit", 0, "how many requests those let in at once (default: as many as have room in headgate's budget)")
	f.StringVar(&o.trace, "trace", "", "play the arrivals of this CSV `file` instead of the scenario's own; with -scenario trace or all, its tenants")
	f.StringVar(&o.report, "report", "", "write an HTML report to this `file`, and the results as JSON beside it")
	f.StringVar(&o.json, "json", "", "write the results as JSON to this `file` (default: the -report's name, with .json)")
	f.DurationVar(&o.duration, "duration", 0, "how long requests arrive (default: the scenario's own, 20s of a trace of bodies)")
	f.Float64Var(&o.speed, "speed", 0, "how many seconds of a trace pass in one (default: 10, and 1 for arrival laws)")
	f.IntVar(&o.limit, "limit", 0, "at most so many requests of a trace (default: all)")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed makes the same load")
	f.TextVar(&o.memory, "memory", o.memory, "memory limit of the app, 0 = none")
	f.StringVar(&o.limitBy, "limit-by", limitAuto, "what enforces the limit: auto, cgroup or rlimit")
	f.BoolVar(&o.quiet, "quiet", false, "do not tell how it goes")
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
	case o.peerLimit < 0 || o.peerLimit > maxCalls:
		return fmt.Errorf("-peer-limit is %d: want 1 to %d, or 0 to have it chosen", o.peerLimit, maxCalls)
	case o.memory != 0 && (o.memory < minMemory || o.memory > maxMemory):
		return fmt.Errorf("-memory is %v: want %v to %v, or 0 for none", o.memory, minMemory, maxMemory)
	case o.limitBy != limitAuto && o.limitBy != limitCgroup && o.limitBy != limitRlimit:
		return fmt.Errorf("-limit-by is %q: want auto, cgroup or rlimit", o.limitBy)
	case o.trace == "" && (o.speed != 0 || o.limit != 0):
		return errors.New("-speed and -limit are for a -trace")
	case o.against == "" && o.peerLimit != 0:
		return errors.New("-peer-limit is for -against")
	}
	if err := o.validateFiles(); err != nil {
		return err
	}
	if _, err := parsePeers(o.against); err != nil {
		return err
	}
	return o.validateScenario()
}

func (o *options) validateScenario() error {
	chosen, err := find(o.scenario, o.trace != "")
	switch {
	case err != nil:
		return err
	case o.trace == "" && chosen[0].virtual:
		return fmt.Errorf("-scenario %s plays the tenants of a -trace: name its file", o.scenario)
	case (o.scenario == everything || chosen[0].virtual) && (o.speed != 0 || o.limit != 0):
		return fmt.Errorf("-speed and -limit are for a -trace of bodies: not with -scenario %s", o.scenario)
	case o.trace != "" && o.scenario != everything && o.scenario != bodies().name && !chosen[0].virtual:
		return fmt.Errorf("-trace takes the place of the load of -scenario bodies: not with -scenario %s", o.scenario)
	case o.against != "" && o.scenario != everything && chosen[0].backEnd != nil:
		return fmt.Errorf("-against: those libraries limit what comes in, and -scenario %s is about calls to a back end", o.scenario)
	}
	return nil
}

// validateFiles finds what would be found only after the storm otherwise.
func (o *options) validateFiles() error {
	for _, f := range []struct{ flag, name string }{{"-report", o.report}, {"-json", o.json}} {
		if f.name == "" {
			continue
		}
		if dir, err := os.Stat(filepath.Dir(f.name)); err != nil || !dir.IsDir() {
			return fmt.Errorf("%s is %q: %s is not a directory", f.flag, f.name, filepath.Dir(f.name))
		}
	}
	if o.report != "" && filepath.Clean(o.report) == filepath.Clean(o.jsonFile()) {
		return fmt.Errorf("-report is %q: that is where the JSON goes; name the page .html, or leave it out and say -json", o.report)
	}
	return nil
}

// A Go process does not start in less, and a shell counts limits in KiB.
const (
	minMemory = gate.Size(64 << 20)
	maxMemory = gate.Size(1 << 40)
)
