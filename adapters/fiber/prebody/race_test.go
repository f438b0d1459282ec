//go:build race

package prebody_test

const raceEnabled = true
