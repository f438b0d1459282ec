//go:build race

package inflight

// raceEnabled says that the race detector is on, which allocates by itself.
const raceEnabled = true
