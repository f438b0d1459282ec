package pressure

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"syscall"
	"unsafe"
)

// memoryStatusEx is MEMORYSTATUSEX of the Windows API.
type memoryStatusEx struct {
	length               uint32
	memoryLoad           uint32
	totalPhys            uint64
	availPhys            uint64
	totalPageFile        uint64
	availPageFile        uint64
	totalVirtual         uint64
	availVirtual         uint64
	availExtendedVirtual uint64
}

// machineMemory returns the physical memory in bytes, > 0.
func machineMemory(fs.FS) (int64, error) {
	call := syscall.NewLazyDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")
	if err := call.Find(); err != nil {
		return 0, err
	}
	var status memoryStatusEx
	status.length = uint32(unsafe.Sizeof(status))
	if ok, _, err := call.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0, fmt.Errorf("GlobalMemoryStatusEx: %w", err)
	}
	if status.totalPhys == 0 || status.totalPhys > math.MaxInt64 {
		return 0, errors.New("GlobalMemoryStatusEx: no usable size")
	}
	return int64(status.totalPhys), nil
}
