#!/bin/sh
# Checks the model of the rules of package overlay with Spin and prints the number
# of states of each run: sh internal/overlay/model/check.sh (or make model). The
# configurations named right must have no error, and each broken variant must have
# one. The argument quick selects smaller configurations. Needs spin and a C compiler.
set -eu
model=$(cd "$(dirname "$0")" && pwd)/overlay.pml
spin=${SPIN:-spin}
for tool in "$spin" cc; do
	command -v "$tool" >/dev/null || { echo "$tool is not here; the Debian packages are spin and gcc"; exit 1; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# check WANT NAME FLAGS... runs one form and compares the number of errors.
check() {
	want=$1 name=$2
	shift 2
	"$spin" "$@" -a "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
	cc $optimize -w -DSAFETY -DCOLLAPSE -DNOFAIR -DMEMLIM=6000 -DVECTORSZ=4096 -o pan pan.c
	./pan -m300000 -w"$hash" >pan.log 2>&1 || true
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
	printf '%-52s %12s states, errors: %s\n' "$name" "$states" "$errors"
	if grep -q 'max search depth too small\|out of memory\|aborted' pan.log || [ "$errors" != "$want" ]; then
		cat pan.log
		echo "$name: wanted $want errors and a whole search"
		exit 1
	fi
}

hash=24 optimize=-O1
if [ "${1:-}" = quick ]; then
	hash=20 optimize=-O0
	check 0 "right: 3 ranks, 1 killed, 1 exits, 1 stopped" -DKILLS=1 -DEXITS=1 -DSTOPS=1
	check 0 "right: 3 ranks, 1 leaves, 1 killed" -DLEAVES=1 -DKILLS=1
	check 0 "right: 3 ranks, 1 cut, 1 killed, 1 exits" -DCUTS=1 -DKILLS=1 -DEXITS=1
	check 0 "right: 3 ranks, 1 killed, 1 exits, 2 found ended" -DKILLS=1 -DEXITS=1 -DSEES=2
else
	check 0 "right: 3 ranks, 1 killed, 1 exits, 1 stopped" -DKILLS=1 -DEXITS=1 -DSTOPS=1
	check 0 "right: 3 ranks, 2 leave" -DLEAVES=2
	check 0 "right: 3 ranks, 1 leaves, 1 killed, 1 exits" -DLEAVES=1 -DKILLS=1 -DEXITS=1
	check 0 "right: 3 ranks, 1 leaves, 1 stopped" -DLEAVES=1 -DSTOPS=1
	check 0 "right: 3 ranks, 1 cut, 1 killed, 1 exits" -DCUTS=1 -DKILLS=1 -DEXITS=1
	check 0 "right: 3 ranks, 1 doubted, 1 killed, 1 exits" -DDOUBTS=1 -DKILLS=1 -DEXITS=1
	check 0 "right: 3 ranks, 2 causes" -DREPORTS=2
	check 0 "right: 3 ranks, 1 cause, 1 killed, 1 stopped" -DREPORTS=1 -DKILLS=1 -DSTOPS=1
	check 0 "right: 3 ranks, 1 cause, 1 leaves" -DREPORTS=1 -DLEAVES=1
	check 0 "right: 3 ranks, 1 killed, 1 exits, 2 found ended" -DKILLS=1 -DEXITS=1 -DSEES=2
	check 0 "right: 3 ranks, 1 stopped, 1 killed, 1 exits, 1 found" -DSTOPS=1 -DKILLS=1 -DEXITS=1 -DSEES=1
	check 0 "right: 3 ranks, 1 leaves, 1 killed, 1 exits, 1 found" -DLEAVES=1 -DKILLS=1 -DEXITS=1 -DSEES=1
	check 0 "right: 4 ranks, 2 killed" -DN=4 -DKILLS=2
	check 0 "right: 4 ranks, 1 killed, 1 exits" -DN=4 -DKILLS=1 -DEXITS=1
	check 0 "right: 4 ranks, 1 stopped, 1 killed" -DN=4 -DSTOPS=1 -DKILLS=1
	check 0 "right: 4 ranks, rank 3 killed, rank 2 leaves" -DN=4 -DKILLS=1 -DLEAVES=1 -DVICTIM=3 -DLEAVER=2
	check 0 "right: 4 ranks, rank 0 leaves, rank 3 killed, 1 exits" -DN=4 -DLEAVES=1 -DKILLS=1 -DEXITS=1 -DLEAVER=0 -DVICTIM=3
fi
check 1 "broken: a rank acts before it forwards" -DACTFIRST -DKILLS=1 -DEXITS=1
check 1 "broken: no redial" -DNOREDIAL -DCUTS=1
check 1 "broken: a new link begins without the facts" -DN=4 -DNOSTATE -DKILLS=2
check 1 "broken: a rank exits before its goodbye is noted" -DLEAVEFAST -DLEAVES=2
check 1 "broken: no suspicion" -DN=4 -DNOSUSPECT -DEVEN -DSTAY -DSTOPS=2 -DREPORTS=1 -DREPORTER=1
check 1 "broken: greetings of earlier links count" -DN=4 -DOLDGREETING -DKILLS=1 -DLEAVES=1 -DVICTIM=3 -DLEAVER=2
check 1 "broken: a rank acts without a link" -DACTALONE -DN=4 -DLEAVES=1 -DKILLS=1 -DEXITS=1 -DLEAVER=0 -DVICTIM=3
check 1 "broken: losses are decided on in any order" -DUNORDERED -DKILLS=1 -DEXITS=1 -DSEES=1
check 1 "broken: a repeated goodbye is never acknowledged" -DOVERCOVER -DLEAVES=2
echo "the right forms have no error, and each broken one was caught"
