//go:build !race

package admission

// raceEnabled says that the race detector is on, which allocates by itself.
const raceEnabled = false
