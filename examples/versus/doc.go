// Package versus compares headgate with other libraries that bound concurrency.
// It holds benchmarks; cmd/ratios runs them interleaved and prints the ratios. cmd/app
// is an app behind one of the libraries, for the storm in examples. README.md says what
// is compared and how.
package versus
