#!/bin/sh
# Checks the model of docs/design/membership.md and prints how many states each run had:
# sh internal/agree/model/check.sh (or make model). The correct variants must have no
# error; each broken variant must have one. The argument quick selects smaller correct
# variants, which take some seconds. It needs spin and a C compiler.
set -eu
model=$(cd "$(dirname "$0")" && pwd)/agree.pml
spin=${SPIN:-spin}
for tool in "$spin" cc; do
	command -v "$tool" >/dev/null || { echo "$tool is not here; the Debian packages are spin and gcc"; exit 1; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# check WANT NAME FLAGS... runs one variant and compares the number of errors.
check() {
	want=$1 name=$2
	shift 2
	"$spin" "$@" -a "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
	cc -O1 -w -DSAFETY -DCOLLAPSE -DNOFAIR -DMEMLIM=4000 -DVECTORSZ=2048 -o pan pan.c
	./pan -m100000 -w"$hash" >pan.log 2>&1 || true
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
	printf '%-44s %12s states, errors: %s\n' "$name" "$states" "$errors"
	if grep -q 'max search depth too small\|out of memory\|aborted' pan.log || [ "$errors" != "$want" ]; then
		cat pan.log
		echo "$name: wanted $want errors and a whole search"
		exit 1
	fi
}

hash=26
if [ "${1:-}" = quick ]; then
	hash=20
	check 0 "right: one step, 1 crash" -DEPOCHS=1
	check 0 "right: two ranks, Grow and a newcomer" -DEPOCHS=1 -DN=2 -DGROW
else
	check 0 "right: one step, 2 crashes, lost answers" -DEPOCHS=1 -DCRASHES=2 -DRETRIES=1
	check 0 "right: two steps, 1 crash" -DEPOCHS=2 -DWORKING=1
	check 0 "right: Grow and a newcomer, 1 crash" -DEPOCHS=1 -DGROW
fi
check 0 "right: a true failure detector keeps all" -DEPOCHS=2 -DACCURATE
check 1 "broken: next is set, not compared and set" -DEPOCHS=1 -DPLAINSET
check 1 "broken: no freeze before announcing" -DEPOCHS=1 -DNOFREEZE
check 1 "broken: own proposal taken for the decision" -DEPOCHS=1 -DOWNPLAN
check 1 "broken: Grow's number counts its meeting" -DEPOCHS=1 -DGROW -DGROWNUMBER
echo "the right forms have no error, and each broken one was caught"
