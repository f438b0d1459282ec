// Package near helps to keep records ready close to the goroutines that use them.
//
// A goroutine's stack lies where no other one's does, so its address picks, among a
// few records, mostly the same one every time, which is then in the processor's
// cache. That takes half the time of a sync.Pool. A record that is out is not waited
// for: there must be another source.
package near

import "unsafe"

// Size is the number of records to keep.
const Size = 1 << bits

const bits = 6

// Index is the caller's place among Size records, for one purpose of many.
func Index(purpose uint) uint {
	var here byte
	// The factor, 2^64 over the golden ratio, spreads stacks that lie side by side.
	stack := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9e3779b97f4a7c15 >> (64 - bits)
	return (uint(stack) + purpose) % Size
}

// Same reports whether a and b are the very same bytes in memory. If it is false they
// may be equal still.
func Same(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}
