package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// memory is what a process has in physical memory, in bytes.
type memory struct{ now, peak int64 }

// readMemory reads the memory of a process from Linux's /proc. False where there is
// none, and when the process has ended.
func readMemory(pid int) (memory, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, false
	}
	return parseMemory(string(text))
}

func parseMemory(status string) (m memory, ok bool) {
	for l := range strings.Lines(status) {
		name, value, _ := strings.Cut(l, ":")
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			m.now = kib << 10
		case "VmHWM":
			m.peak = kib << 10
		}
	}
	return m, m.now > 0 // none is left of a process that is about to end
}
