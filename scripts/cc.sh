#!/bin/sh
# Says whether a C compiler with the C library's headers is here: the race detector needs cgo, cgo needs both.
set -eu

cc=$(go env CC)
if ! command -v "${cc%% *}" >/dev/null 2>&1; then
	printf 'missing: the C compiler "%s". The race detector needs cgo and so a C compiler; on Debian: apt-get install gcc libc6-dev\n' "$cc" >&2
	exit 1
fi
# shellcheck disable=SC2086 # CC may hold flags
if ! printf '#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return 0; }\n' |
	$cc -x c -fsyntax-only - >/dev/null 2>&1; then
	printf 'missing: the headers of the C library (stdlib.h, pthread.h), or "%s" does not work. The race detector needs cgo and so both; on Debian: apt-get install gcc libc6-dev\n' "$cc" >&2
	exit 1
fi
