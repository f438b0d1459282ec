//go:build !darwin && !windows

package pressure

import "io/fs"

// machineMemory returns the physical memory in bytes, > 0.
func machineMemory(root fs.FS) (int64, error) { return memTotal(root) }
