//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"os"
	"runtime"
	"syscall"
)

// maxRSS returns the most physical memory that an ended process has had, in bytes.
func maxRSS(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	switch {
	case !ok:
		return 0
	case runtime.GOOS == "darwin": // in bytes there, in KiB elsewhere
		return int64(usage.Maxrss) //nolint:unconvert // an int32 on 32 bits
	}
	return int64(usage.Maxrss) << 10 //nolint:unconvert // an int32 on 32 bits
}
