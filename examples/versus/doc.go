// Package versus compares headgate with other libraries that bound concurrency.
// It holds benchmarks only; cmd/ratios runs them interleaved and prints the
// ratios. README.md says what is compared and how.
package versus
