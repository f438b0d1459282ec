#!/bin/sh
# Tests the module in the current directory with the newest versions of what it requires. The files that say which
# versions it requires stay as they are: they hold the oldest ones that work, and `make race` tests those.
#
#   scripts/newest.sh COMMAND [ARGUMENT...]
#
# COMMAND is what tests it, without packages: scripts/newest.sh go test -timeout=5m
#
# A version that wants a newer Go than this one is passed over for the one before it.
set -eu

GOWORK=off # -modfile wants it
export GOWORK
direct=$(go list -m -f '{{if not (or .Main .Indirect .Replace)}}{{.Path}}{{end}}' all)
[ -n "$direct" ] || {
	echo "   nothing is required"
	exit 0
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp go.mod go.sum "$dir"

# raise takes the newest version of a module that this Go can build.
raise() {
	for version in $(go list -m -f '{{range .Versions}}{{println .}}{{end}}' -versions "$1" | grep -v -- - | tail -n 5 | sed '1!G;h;$!d'); do
		if go get -modfile="$dir/go.mod" "$1@$version" >"$dir/log" 2>&1; then
			echo "   $1 $version"
			return
		fi
		grep -q 'requires go' "$dir/log" || break
	done
	cat "$dir/log" >&2
	echo "no newest version of $1" >&2
	exit 1
}

for module in $direct; do
	raise "$module"
done
go mod tidy -modfile="$dir/go.mod" >"$dir/log" 2>&1 || {
	cat "$dir/log" >&2
	exit 1
}
"$@" -modfile="$dir/go.mod" ./...
