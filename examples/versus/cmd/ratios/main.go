// Command ratios prints how many times as much headgate takes as each of the other
// libraries, against the bars of the project, from interleaved runs of the module's
// benchmarks. It judges nothing by its exit code, which is 0 unless a benchmark fails.
//
// Run it in the module's directory:
//
//	go run ./cmd/ratios            # 10 runs
//	go run ./cmd/ratios -n 3 -benchtime 100ms -row 'Uncontended|Middleware'
//
// Each run starts every benchmark once, each in a process of its own, every other
// run backwards; a ratio is taken inside a run, and the median over the runs is
// printed. Ratios so outlive noise that would make two plain figures worthless.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/benchmark/parse"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("ratios: ")
	n := flag.Int("n", 10, "number of runs")
	benchtime := flag.String("benchtime", "200ms", "time of one benchmark, as for go test")
	only := flag.String("row", "", "regular expression for the benchmarks to compare; empty = all")
	binary := flag.String("binary", "", "compiled test binary; empty = compile the package in this directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, *n, *benchtime, *only, *binary); err != nil {
		stop()
		log.Fatal(err)
	}
}

func compare(ctx context.Context, n int, benchtime, only, binary string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-row: %w", err)
	}
	if n < 1 {
		return fmt.Errorf("-n is %d: want at least 1", n)
	}
	if binary == "" {
		dir, err := os.MkdirTemp("", "ratios")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "versus.test")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("go test -c: %w", err)
		}
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	have, err := bench(ctx, binary, ".", "1x", 0)
	if err != nil {
		return err
	}
	var names []string
	for name := range have {
		names = append(names, name)
	}
	rows := rowsFor(names, pattern)
	if len(rows) == 0 {
		return fmt.Errorf("-row %q matches nothing", only)
	}
	runs, err := runAll(ctx, binary, benchtime, n, tasksOf(rows))
	if err != nil {
		return err
	}
	fmt.Print(table(rows, runs))
	return nil
}

// task is one benchmark at one GOMAXPROCS, 0 = as many as there are.
type task struct {
	bench  string
	cpu    int
	rounds string // benchtime, "" = that of all
}

// run is what one run measured.
type run map[task]parse.Benchmark

func tasksOf(rows []row) []task {
	var tasks []task
	for _, r := range rows {
		for _, name := range []string{r.ours, r.peer} {
			if t := (r.task(name)); !slices.Contains(tasks, t) {
				tasks = append(tasks, t)
			}
		}
	}
	return tasks
}

func runAll(ctx context.Context, binary, benchtime string, n int, tasks []task) ([]run, error) {
	var runs []run
	for i := range n {
		r := run{}
		for _, t := range tasks {
			got, err := bench(ctx, binary, exactly(t.bench), cmp.Or(t.rounds, benchtime), t.cpu)
			if err != nil {
				return nil, err
			}
			b, ok := got[t.bench]
			if !ok {
				return nil, fmt.Errorf("%s printed no result", t.bench)
			}
			r[t] = b
		}
		runs = append(runs, r)
		slices.Reverse(tasks)
		log.Printf("run %d of %d done", i+1, n)
	}
	return runs, nil
}

// exactly is the -test.bench pattern for one benchmark.
func exactly(name string) string {
	parts := strings.Split("Benchmark"+name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// bench runs what pattern matches and returns the results by name, without the
// suffix that says GOMAXPROCS.
func bench(ctx context.Context, binary, pattern, benchtime string, cpu int) (map[string]parse.Benchmark, error) {
	args := []string{"-test.run=^$", "-test.bench=" + pattern, "-test.benchtime=" + benchtime, "-test.benchmem"}
	if cpu > 0 {
		args = append(args, fmt.Sprintf("-test.cpu=%d", cpu))
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", pattern, err, out)
	}
	set, err := parse.ParseSet(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	results := map[string]parse.Benchmark{}
	for name, b := range set {
		results[strings.TrimPrefix(suffix.ReplaceAllString(name, ""), "Benchmark")] = *b[0]
	}
	return results, nil
}

var suffix = regexp.MustCompile(`-\d+$`)
