# Needs Go and make; `race` (and so `check`) also a C compiler. Everything else is fetched by Go and cached.
# The commands run per module, see scripts/each.sh; modules are found, so a new one needs no edit here.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# One hung test ends its package with a goroutine dump instead of blocking for ever.
TEST_TIMEOUT := 5m
RACE_TIMEOUT := 10m

# Passed to `go test` by bench: make bench BENCH=Contended COUNT=10
BENCH := .
BENCHTIME := 1s
COUNT := 1

# Builds must not depend on who owns the checkout, which stamping the commit does.
export GOFLAGS := $(strip $(filter-out -buildvcs%,$(shell go env GOFLAGS 2>/dev/null)) -buildvcs=false)

EACH := scripts/each.sh

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## run the memory storm with and without headgate, write report.html (under a minute)
	cd examples && go run ./storm -scenario bodies -report ../report.html
	@echo "the charts are in $(CURDIR)/report.html"

.PHONY: test
test: ## test every module of the workspace, built together
	@$(EACH) test work go test -timeout=$(TEST_TIMEOUT) ./...

.PHONY: cgroup
cgroup: ## play the memory storm in a cgroup of 256 MiB and print its figures (needs root; else it says so)
	cd examples && go test -count=1 -v -timeout=$(TEST_TIMEOUT) -run '^TestMemoryStorm$$' ./storm

# In the order of their cost. `race` runs every module's tests with GOWORK=off, hence no `test-off` beside it; the few
# tests that the detector would falsify (they count allocations) run in `test`.
CHECK := fmt-check laws snippets docs-check tidy-check build-off vet staticcheck race

.PHONY: check
check: $(CHECK) ## all the rest that must hold: format, laws, snippets, tidy, vet, staticcheck, each module alone and raced
	@echo "check: everything holds"

.PHONY: check-steps
check-steps:
	@echo $(CHECK)

.PHONY: ci
ci: test check ## test and check, everything that must hold before a merge

.PHONY: fmt
fmt: ## format every Go file
	gofmt -l -w .

.PHONY: fmt-check
fmt-check: ## fail when a Go file is not formatted
	@files=$$(gofmt -l .) || { echo "FAILED: fmt-check: gofmt cannot read the files above" >&2; exit 1; }; \
	[ -z "$$files" ] || { printf '%s\n\nFAILED: fmt-check: not formatted (see above); run: make fmt\n' "$$files" >&2; exit 1; }; \
	echo "fmt-check: every file is formatted"

.PHONY: laws
laws: ## check the structure laws: file and function length, core's requirements, modules
	@scripts/laws.sh

.PHONY: snippets
snippets: ## fail when a Go block of a Markdown file does not compile
	@cd scripts/tools && GOWORK=off go run ./snippets

.PHONY: docs-check
docs-check: ## fail when an export has no comment, or an entry point no Example that runs
	@cd scripts/tools && GOWORK=off go run ./docscheck

.PHONY: vet
vet: ## vet every module, those of go.work also as darwin, windows and 386
	@$(EACH) vet off go vet ./...
	@$(EACH) vet-darwin listed env CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go vet ./...
	@$(EACH) vet-windows listed env CGO_ENABLED=0 GOOS=windows GOARCH=amd64 go vet ./...
	@$(EACH) vet-386 listed env CGO_ENABLED=0 GOOS=linux GOARCH=386 go vet ./...

.PHONY: tidy
tidy: ## go mod tidy in every module
	@$(EACH) tidy off go mod tidy

.PHONY: tidy-check
tidy-check: ## fail when go mod tidy would change a module
	@$(EACH) tidy-check off go mod tidy -diff

.PHONY: build-off
build-off: ## build every module by itself (GOWORK=off)
	@$(EACH) build-off off go build -o /dev/null ./...

.PHONY: test-off
test-off: ## test every module by itself (GOWORK=off)
	@$(EACH) test-off listed go test -timeout=$(TEST_TIMEOUT) ./...
	@$(EACH) test-off standalone go test -short -timeout=$(TEST_TIMEOUT) ./...

.PHONY: race
race: ## test every module by itself with the race detector (GOWORK=off; needs a C compiler)
	@scripts/cc.sh || { echo "FAILED: race: see the line above" >&2; exit 1; }
	@$(EACH) race listed env CGO_ENABLED=1 go test -race -timeout=$(RACE_TIMEOUT) ./...
	@$(EACH) race standalone env CGO_ENABLED=1 go test -race -short -timeout=$(RACE_TIMEOUT) ./...

.PHONY: newest
newest: ## test the adapters with the newest versions of their frameworks (go.mod has the oldest that work)
	@$(EACH) newest adapters "$(CURDIR)/scripts/newest.sh" go test -timeout=$(TEST_TIMEOUT)

.PHONY: staticcheck
staticcheck: ## run staticcheck in every module
	@$(EACH) staticcheck off go run $(STATICCHECK) ./...

.PHONY: lint
lint: ## run golangci-lint with .golangci.yml in every module (slow the first time; not part of check)
	@$(EACH) lint off go run $(GOLANGCI_LINT) run ./...

.PHONY: bench
bench: ## compare with other libraries (BENCH=, BENCHTIME=, COUNT= as for go test)
	@$(EACH) bench standalone go test -run='^$$' -bench='$(BENCH)' -benchmem -benchtime=$(BENCHTIME) -count=$(COUNT) -timeout=60m ./...

.PHONY: release-check
release-check: ## everything before a tag: make release-check VERSION=v0.1.0 (see RELEASE.md; QUICK=1 leaves out the tests)
	@scripts/release-check.sh "$(VERSION)"

.PHONY: release-versions
release-versions: ## require the modules of this repository of each other at VERSION
	@cd scripts/tools && GOWORK=off go run ./release versions "$(VERSION)"

.PHONY: release-tags
release-tags: ## print the commands that tag VERSION and push the tags
	@cd scripts/tools && GOWORK=off go run ./release tags "$(VERSION)"
