// Package operations holds the tests of docs/operations: the alert rules, the runbook
// and the dashboard, the last against a Prometheus that scrapes a running service.
//
//	go test ./operations -v
//
// The commands promtool and prometheus are Debian's package prometheus. Where they are
// missing the tests that need them are skipped, and fail where HEADGATE_REQUIRE_PROMETHEUS
// is 1. The others need nothing.
package operations
