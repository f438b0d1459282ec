package pressure_test

import (
	"fmt"
	"math"
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
