//go:build !race

package waitq

// raceEnabled: the race detector is off.
const raceEnabled = false
