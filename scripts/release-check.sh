#!/bin/sh
# Everything that must hold before a version is tagged; RELEASE.md says when to run it.
#
#   scripts/release-check.sh VERSION
#
# It changes nothing: what it builds is in temporary directories, and in Go's caches nothing is kept that has the
# version's name. QUICK=1 leaves out the tests, for a rehearsal; what is left takes a few minutes.
set -eu

version=${1:-}
[ -n "$version" ] || {
	echo "which version? make release-check VERSION=v0.1.0" >&2
	exit 2
}
cd "$(dirname "$0")/.."

# The directory holds the program that the steps below call.
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd scripts/tools && GOWORK=off go build -o "$bin" ./release)

begin=$(date +%s)
step() {
	name="${1##*/} $(shift && echo "$*")"
	printf '\n==== %s\n' "$name"
	start=$(date +%s)
	"$@" || {
		printf '\nFAILED: release-check, step: %s\n' "$name" >&2
		exit 1
	}
	printf -- '---- %ss\n' $(($(date +%s) - start))
}

# In the order of their cost, and the tree first: what is not committed is not what would be tagged.
step "$bin/release" state "$version"
step make -s laws fmt-check tidy-check snippets docs-check
step "$bin/release" api "$version"
step "$bin/release" consumer "$version"
if [ -z "${QUICK:-}" ]; then
	step make -s test-off # each module alone: the oldest versions of what it requires
	step make -s newest
fi
step "$bin/release" state "$version" # no step has left something behind

printf '\nrelease-check: %s holds' "$version"
[ -z "${QUICK:-}" ] || printf ', WITHOUT the tests (QUICK is set)'
printf ', after %ss\n' $(($(date +%s) - begin))
