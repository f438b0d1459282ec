package pressure

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
)

const meminfoFile = "proc/meminfo"

// memTotal returns the physical memory in bytes, > 0.
func memTotal(root fs.FS) (int64, error) {
	var value string
	err := readLines(root, meminfoFile, func(line string) bool {
		v, ok := strings.CutPrefix(line, "MemTotal:")
		if ok {
			value = v
		}
		return !ok
	})
	if err != nil {
		return 0, err
	}
	if value == "" {
		return 0, fileError(meminfoFile, errors.New("no MemTotal"))
	}
	kib, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
	n, err := strconv.ParseUint(kib, 10, 64)
	if !ok || err != nil || n == 0 || n > math.MaxInt64>>10 {
		return 0, fileError(meminfoFile, fmt.Errorf("MemTotal %.40q is no usable size", value))
	}
	return int64(n) << 10, nil
}
