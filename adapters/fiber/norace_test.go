//go:build !race

package fibergate_test

const raceEnabled = false
