//go:build !race

package httpgate_test

const raceEnabled = false
