package pressure_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/headgate-go/headgate/core/pressure"
)

// A container that may use 512 MiB, in a pod that may use 256 MiB: the pod binds.
func ExampleReadCeiling() {
	root := fstest.MapFS{
		"proc/meminfo":                      {Data: []byte("MemTotal:  16777216 kB\n")},
		"proc/self/cgroup":                  {Data: []byte("0::/pod/app\n")},
		"sys/fs/cgroup/pod/app/memory.max":  {Data: []byte("536870912\n")},
		"sys/fs/cgroup/pod/memory.max":      {Data: []byte("268435456\n")},
		"sys/fs/cgroup/pod/app/memory.high": {Data: []byte("max\n")},
	}
	c := pressure.ReadCeiling(root, math.MaxInt64) // no GOMEMLIMIT
	fmt.Println(c.Bytes>>20, "MiB from", c.Source, c.Path)

	c = pressure.ReadCeiling(root, 200<<20) // GOMEMLIMIT=200MiB
	fmt.Println(c.Bytes>>20, "MiB from", c.Source)
	// Output:
	// 256 MiB from cgroup /pod
	// 200 MiB from gomemlimit
}

// Without files to read there is a reason, never a zero that could be taken for a limit.
func ExampleReadCeiling_unknown() {
	c := pressure.ReadCeiling(fstest.MapFS{}, math.MaxInt64)
	if c.Bytes == 0 {
		fmt.Println("unknown:", c.Reason)
	}
	// Output:
	// unknown: cgroup: /proc/self/cgroup: file does not exist; physical memory: /proc/meminfo: file does not exist; no memory limit is known
}

// There is a value or a reason, whatever the machine.
func ExampleCurrentCeiling() {
	c := pressure.CurrentCeiling()
	fmt.Println(c.Bytes > 0 || c.Reason != "")
	// Output:
	// true
}

// A monitor with the defaults, asked on every request and told to others.
func ExampleNew() {
	m, err := pressure.New(pressure.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()

	if m.Severity() == pressure.Critical {
		fmt.Println("refuse heavy work")
	}
	stop := m.Watch(func(s pressure.Severity, c pressure.Ceiling) {
		// Called soon, and after each change: derive limits from c.Bytes here.
	})
	defer stop()
	fmt.Println(m.Severity(), m.Ready())
	// Output:
	// normal true
}

// The snapshot of a container that holds 480 of its 512 MiB, but 120 of them are page cache.
func ExampleMonitor_Snapshot() {
	c := pressure.DefaultConfig()
	c.Root = fstest.MapFS{
		"proc/meminfo":                  {Data: []byte("MemTotal:  16777216 kB\n")},
		"proc/self/cgroup":              {Data: []byte("0::/app\n")},
		"sys/fs/cgroup/app/memory.max":  {Data: []byte("536870912\n")},
		"sys/fs/cgroup/app/memory.stat": {Data: []byte("inactive_file 62914560\nactive_file 62914560\n")},

		"sys/fs/cgroup/app/memory.current":  {Data: []byte("503316480\n")},
		"sys/fs/cgroup/app/memory.pressure": {Data: []byte("some avg10=2.50 avg60=0.31 avg300=0.00 total=1736583\n")},
	}
	m, err := pressure.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	for _, s := range m.Snapshot().Signals {
		switch s.Name {
		case "working_set":
			fmt.Printf("%s: %s, limit %d MiB, recovered: %v\n", s.Name, s.State, s.LimitBytes>>20, *s.Value <= s.Recovered)
		case "psi_some", "psi_full":
			if s.Value == nil {
				fmt.Printf("%s: %s, %s\n", s.Name, s.State, s.Reason)
			} else {
				fmt.Printf("%s: %s, %v %% of the %s\n", s.Name, s.State, *s.Value, s.Scope)
			}
		}
	}
	// Output:
	// working_set: normal, limit 512 MiB, recovered: true
	// psi_some: normal, 2.5 % of the cgroup
	// psi_full: unknown, the stall information has no full
}

// A config that cannot work is refused with the field's name.
func ExampleConfig_Validate() {
	c := pressure.DefaultConfig()
	c.WorkingSet.Recovered = 0.9
	fmt.Println(c.Validate())
	// Output:
	// pressure: WorkingSet.High is 0.85: want above Recovered, 0.9 (DefaultConfig has working values)
}

// New thresholds hold from the next sample on.
func ExampleMonitor_Reconfigure() {
	c := pressure.DefaultConfig()
	m, err := pressure.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	c.PSI.Off = true // many neighbours on this machine, and no cgroup of our own
	fmt.Println(m.Reconfigure(c))
	// Output:
	// <nil>
}

// A readiness probe takes a process that is stuck at its limit out of the load
// balancer; the liveness probe lets it live.
func ExampleMonitor_Ready() {
	m, err := pressure.New(pressure.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()

	probe := func(w http.ResponseWriter, _ *http.Request) {
		if !m.Ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	w := httptest.NewRecorder()
	probe(w, nil)
	fmt.Println(w.Code)
	// Output:
	// 200
}

// Severities are ordered.
func ExampleSeverity() {
	fmt.Println(pressure.Normal < pressure.High, pressure.High < pressure.Critical, pressure.Critical)
	// Output:
	// true true critical
}
