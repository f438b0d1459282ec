//go:build !race

package prebody_test

const raceEnabled = false
