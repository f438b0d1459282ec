//go:build race

package lanes

// raceEnabled tells tests that the race detector is on.
const raceEnabled = true
