package pressure

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"syscall"
)

// machineMemory returns the physical memory in bytes, > 0.
func machineMemory(fs.FS) (int64, error) {
	raw, err := syscall.Sysctl("hw.memsize")
	if err != nil {
		return 0, fmt.Errorf("sysctl hw.memsize: %w", err)
	}
	return sysctlSize(raw)
}

// sysctlSize decodes a little-endian 64-bit integer that [syscall.Sysctl] has taken for a
// string: it then lacks the last byte where that is zero.
func sysctlSize(raw string) (int64, error) {
	var n uint64
	for i := range len(raw) {
		if i < 8 {
			n |= uint64(raw[i]) << (8 * i)
		}
	}
	if len(raw) > 8 || n == 0 || n > math.MaxInt64 {
		return 0, errors.New("sysctl hw.memsize: no usable size")
	}
	return int64(n), nil
}
