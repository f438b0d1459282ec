// Package guides holds the Go code of the guides in docs/guides. Its tests run it, so that
// what the guides show compiles and does what they say.
package guides
