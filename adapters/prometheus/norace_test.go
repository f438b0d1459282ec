//go:build !race

package promgate_test

const raceEnabled = false
