package pressure

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// B19: the machine's stalls are its neighbours', too. Those of the own cgroup win.
func TestB19HostPSI(t *testing.T) {
	const host = "some avg10=45.00 avg60=20.00 avg300=9.00 total=9\nfull avg10=30.00 avg60=12.00 avg300=4.00 total=4\n"
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		w.write(hostPSI, host)
		w.app("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1736583\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1677369\n")
		m := w.monitor(t, nil)
		after(30)
		wantSeverity(t, m, Normal)
		if s := signalOf(t, m.Snapshot(), psiSome); s.Scope != "cgroup" || s.Path != "/app" {
			t.Errorf("%+v", s)
		}
		own := "sys/fs/cgroup/app/memory.pressure"
		w.app("memory.pressure", "out of order\n")
		after(2)
		wantSeverity(t, m, High)
		if s := signalOf(t, m.Snapshot(), psiSome); s.Scope != "host" || *s.Value != 45 {
			t.Errorf("own file makes no sense: %+v", s)
		}
		w.remove(own)
		after(1)
		if s := signalOf(t, m.Snapshot(), psiFull); s.Scope != "host" || *s.Value != 30 {
			t.Errorf("no own file: %+v", s)
		}
		// There is one, though it cannot be read: nobody knows.
		w.deny(own, syscall.EACCES)
		after(1)
		wantUnknown(t, signalOf(t, m.Snapshot(), psiSome), "memory.pressure: permission denied")
		wantSeverity(t, m, Normal)
	})
}

// B20: stall information that the kernel has switched off is read once, told once, and
// stops nothing else.
func TestB20NoPSI(t *testing.T) {
	const own = "sys/fs/cgroup/app/memory.pressure"
	for name, prepare := range map[string]func(w *host){
		"EOPNOTSUPP": func(w *host) { w.deny(own, syscall.EOPNOTSUPP) },
		"EOPNOTSUPP of the machine's": func(w *host) {
			w.remove(own)
			w.deny(hostPSI, syscall.EOPNOTSUPP)
		},
		"no file at all": func(w *host) { w.remove(own) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHost()
				prepare(w)
				var log logBuffer
				config := DefaultConfig()
				m := w.monitor(t, func(c *Config) {
					c.Logger = log.logger()
					config = *c
				})
				after(300)
				if n := w.opens(own); n != 1 {
					t.Errorf("%d reads, want 1", n)
				}
				lines := log.lines()
				if len(lines) != 1 || !strings.Contains(lines[0], "psi_some,psi_full") {
					t.Errorf("logged %q, want one line", lines)
				}
				w.full(1000)
				after(2)
				wantSeverity(t, m, Critical)

				// A new configuration looks again.
				w.app("memory.pressure", "some avg10=1.00\n")
				if err := m.Reconfigure(config); err != nil {
					t.Fatal(err)
				}
				after(1)
				wantValue(t, signalOf(t, m.Snapshot(), psiSome), 1)
			})
		})
	}
}

// B24: avg10 is an average already; one clean sample is enough, and the lines in the log
// have the numbers.
func TestB24OneSampleToRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		var log logBuffer
		m := w.monitor(t, func(c *Config) { c.Logger = log.logger() })
		var got []string
		for _, avg10 := range []float64{60, 60, 40, 20, 5, 0} {
			w.app("memory.pressure", fmt.Sprintf("some avg10=%.2f\nfull avg10=0.00\n", avg10))
			after(1)
			got = append(got, m.Severity().String())
		}
		if want := strings.Fields("normal critical critical critical normal normal"); !slices.Equal(got, want) {
			t.Errorf("severities %v, want %v", got, want)
		}
		want := []string{
			`level=WARN msg="memory pressure changed" from=normal to=critical after=2s signal=psi_some value=60 threshold=60 cgroup=/app`,
			`level=INFO msg="memory pressure changed" from=critical to=normal after=3s signal=psi_some value=5 threshold=15 cgroup=/app`,
		}
		if lines := log.lines(); !slices.Equal(lines, want) {
			t.Errorf("logged\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		w.full(900)
		after(2)
		const line = `level=WARN msg="memory pressure changed" from=normal to=high after=3s signal=working_set value=0.87890625 threshold=0.85 ` +
			`used_bytes=943718400 limit_bytes=1073741824 cgroup=/app`
		if lines := log.lines(); len(lines) != 1 || lines[0] != line {
			t.Errorf("logged %q, want %q", lines, line)
		}
	})
}

// B25: what the files of the kernel look like.
func TestB25ParsePSI(t *testing.T) {
	for _, c := range []struct {
		in   string
		want stalls
		ok   bool
	}{
		{"some avg10=0.10 avg60=2.00 avg300=3.85 total=15\nfull avg10=0.05 avg60=3.00 avg300=4.95 total=25\n", stalls{0.10, 0.05}, true},
		{"some avg10=0.10 avg60=2.00 avg300=3.85 total=15\n", stalls{0.10, -1}, true}, // the file of cpu on older kernels
		{"full avg10=0.05 avg60=3.00 avg300=4.95 total=25", stalls{-1, 0.05}, true},
		{"some avg10=0.10 avg60=2.00 avg300=3.85 total=15 more=1 x\nfull avg10=100.00 new=2\nother avg10=7\n\n", stalls{0.10, 100}, true},
		{"some total=15 avg10=1.5\r\n", stalls{1.5, -1}, true},
		{"some avg10=nonsense\nfull avg10=2\n", stalls{-1, 2}, true},
		{"", stalls{-1, -1}, false},
		{"some avg10=NaN\nfull avg10=-1\n", stalls{-1, -1}, false},
		{"some avg10=100.01\nfull avg10=+Inf\n", stalls{-1, -1}, false},
		{"some avg60=1\n", stalls{-1, -1}, false},
		{"avg10=1\n", stalls{-1, -1}, false},
	} {
		if got, ok := parsePSI(c.in); got != c.want || ok != c.ok {
			t.Errorf("%q: %+v, %v; want %+v, %v", c.in, got, ok, c.want, c.ok)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newHost()
		m := w.monitor(t, nil)
		// total starts anew with the container: no spike.
		for _, total := range []int{900, 905, 0, 4} {
			w.app("memory.pressure", fmt.Sprintf("some avg10=0.10 avg60=0.00 avg300=0.00 total=%d\n", total))
			after(1)
			wantSeverity(t, m, Normal)
			wantValue(t, signalOf(t, m.Snapshot(), psiSome), 0.10)
			wantUnknown(t, signalOf(t, m.Snapshot(), psiFull), "no full")
		}
	})
}
