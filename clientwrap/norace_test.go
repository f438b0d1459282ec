//go:build !race

package clientwrap_test

const raceEnabled = false
