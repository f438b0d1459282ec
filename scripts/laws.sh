#!/bin/sh
# Checks the structure laws of CONTRIBUTING.md that no Go tool checks. Prints every breach, then fails.
set -eu

max_file=400 # lines in a file
max_func=70  # lines between the braces of a function

cd "$(dirname "$0")/.."
root=$(pwd -P)
GOWORK=$root/go.work
export GOWORK
status=0

breach() {
	printf 'law: %s\n' "$*"
	status=1
}

# Files and functions, tests and generated code aside. In formatted code only the line that opens a top-level
# function and the brace that closes it start in the first column, so counting lines needs no parser.
find . -name '[._]?*' -prune -o -name testdata -prune -o -name '*.go' ! -name '*_test.go' -exec awk \
	-v max_file=$max_file -v max_func=$max_func '
	function finish() {
		if (!generated && lines > max_file)
			report(file ": " lines " lines, at most " max_file)
		generated = lines = begin = 0
		name = ""
	}
	function report(text) {
		print "law: " text
		broken = 1
	}
	FNR == 1 { finish(); file = substr(FILENAME, 3) } # without the leading ./
	{ lines = FNR }
	/^\/\/ Code generated .* DO NOT EDIT\.$/ { generated = 1 }
	/^func / { name = $0 }
	name != "" && !begin && /^(func|\)).*\{( *\/\/.*)?$/ { begin = FNR }
	/^\}/ {
		if (begin && !generated && FNR - begin - 1 > max_func)
			report(file ":" begin ": function of " (FNR - begin - 1) " lines, at most " max_func ": " name)
		begin = 0
		name = ""
	}
	END { finish(); exit broken }' {} + || status=1

# core is the standard library only, its tests included.
if grep -nE '^[[:space:]]*(require|replace|tool)([[:space:]]|\()' core/go.mod; then
	breach "core/go.mod: core uses the standard library only: no require, replace or tool line"
fi

# A module outside the workspace is tested less, so leaving one out must be meant. examples/versus, clientwrap/sdktest and
# scripts/tools are: what they require must not raise the versions that the workspace builds the adapters with.
listed=$(go list -m -f '{{.Dir}}')
for mod in $(find . -name '[._]?*' -prune -o -name testdata -prune -o -name go.mod -print | sort); do
	dir=${mod#./}
	dir=${dir%/go.mod}
	outside=yes
	! printf '%s\n' "$listed" | grep -qxF "$root/$dir" || outside=no
	case $dir:$outside in
	examples/versus:no | clientwrap/sdktest:no | scripts/tools:no) breach "go.work: $dir must stay outside the workspace" ;;
	examples/versus:yes | clientwrap/sdktest:yes | scripts/tools:yes | *:no) ;;
	*) breach "go.work: module $dir is not listed; add it: go work use ./$dir" ;;
	esac
	if grep -nE '^toolchain[[:space:]]' "$mod"; then
		breach "$dir/go.mod: a toolchain line chooses for the user; remove it"
	fi
done

[ "$status" -eq 0 ] || {
	printf '\nFAILED: laws (see the lines above)\n' >&2
	exit 1
}
printf 'laws hold: files <= %s lines, functions <= %s, core without requirements, every module in go.work\n' \
	$max_file $max_func
