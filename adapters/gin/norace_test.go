//go:build !race

package gingate_test

const raceEnabled = false
