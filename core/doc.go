// Package headgate holds all gates of a process, from one configuration to one
// orderly end.
//
//	hg, err := headgate.Open(headgate.DefaultConfig())
//
// A [Headgate] holds the gates; adapters put them into an application and know
// nothing of this package. Each gate can also be made by itself, with its own
// package: this one adds one Config for all, environment variables, one Snapshot
// and an orderly Shutdown.
package headgate
