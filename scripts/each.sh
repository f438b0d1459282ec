#!/bin/sh
# Runs one command in every Go module of this repository and stops at the first failure.
#
#   scripts/each.sh STEP SCOPE COMMAND [ARGUMENT...]
#
# STEP names the work in the output. SCOPE is one of
#
#   work        the modules that go.work lists, built together
#   off         every module of the repository by itself (GOWORK=off), the way its users build it
#   listed      as off, but only the modules that go.work lists
#   standalone  as off, but only the modules that go.work leaves out
#   adapters    as off, but only the modules below adapters
#
# Modules are found, not named: a new one needs no edit here. core comes first, since every other module needs
# it. From the root, `./...` matches no module of a workspace, hence the loop.
set -eu

step=$1 scope=$2
shift 2

cd "$(dirname "$0")/.."
root=$(pwd -P)
GOWORK=$root/go.work
export GOWORK

fail() {
	printf '\nFAILED: %s\n' "$*" >&2
	exit 1
}

listed=$(go list -m -f '{{.Dir}}') || fail "$step: cannot list the modules of go.work"
every=$(find . -name '[._]?*' -prune -o -name testdata -prune -o -name go.mod -print |
	sed -e "s|^\.|$root|" -e 's|/go\.mod$||' | LC_ALL=C sort)

again=
case $scope in
work | listed) modules=$listed ;;
off) modules=$every ;;
standalone) modules=$(printf '%s\n' "$every" | grep -vxF "$listed" || true) ;;
adapters) modules=$(printf '%s\n' "$every" | grep -F "$root/adapters/" || true) ;;
*) fail "$step: unknown scope \"$scope\"" ;;
esac
modules=$(printf '%s\n' "$modules" | awk -v first="$root/core" '$0 == first { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }')
if [ "$scope" != work ]; then
	GOWORK=off
	again='GOWORK=off '
fi

# One module per line; a path may hold spaces.
IFS='
'
set -f
for dir in $modules; do
	name=${dir#"$root"/}
	printf '== %s: %s\n' "$step" "$name"
	start=$(date +%s)
	(cd "$dir" && "$@") </dev/null || {
		IFS=' '
		fail "$step, module $name. To repeat: cd $name && $again$*"
	}
	took=$(($(date +%s) - start))
	[ "$took" -lt 5 ] || printf -- '   %s: %s took %ss\n' "$step" "$name" "$took"
done
