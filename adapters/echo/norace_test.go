//go:build !race

package echogate_test

const raceEnabled = false
