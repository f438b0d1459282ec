//go:build race

package waitq

// raceEnabled: the race detector is on. It slows everything down about ten times,
// and makes sync.Pool drop what it is given at random.
const raceEnabled = true
