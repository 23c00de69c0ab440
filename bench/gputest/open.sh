#!/bin/sh
# Shows on a machine with one GPU, and no Go, what has not been shown there yet. "make
# gpu-open" puts this script and all that it runs into out/open.
#
#	NCCL=/path/libnccl.so.2 OTHER=/other/libnccl.so.2 out/open/open.sh shrink mismatch
#
# The steps that are named are run, one after the other, or all; each ends in time, and
# none is left out because another failed. At the end there is a table. NCCL is the
# library (none: what is found), OTHER another version of it for the conformance suite
# (none: the same). Logs go to the folder OUT (none: log, beside this script).
set -u
here=$(cd "$(dirname "$0")" && pwd)
log=${OUT:-$here/log}
mkdir -p "$log"
NCCL=${NCCL:-}
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"

# In order of value, and how many seconds each may take. A call of at most ten minutes
# has room for the first three, the next four, or one of the last two.
all='shrink mismatch bench bench8 staged suite1 suite8 enqueue cycles'
limit() {
	case $1 in
	shrink) echo 180 ;;
	mismatch) echo 180 ;;
	bench | bench8) echo 140 ;;
	staged) echo 60 ;;
	suite1) echo 120 ;;
	suite8) echo 270 ;;
	enqueue) echo 240 ;;
	cycles) echo 580 ;;
	*) return 1 ;;
	esac
}

# step runs what a step consists of.
step() {
	case $1 in
	shrink) # four ranks, two are killed, two others come; without MPS
		"$here/gputest" shrink -nccl "$NCCL" -rounds 5 -budget 170s
		;;
	mismatch) # ranks that do different things
		"$here/faults" mismatch --engine nccl --nccl "$NCCL"
		;;
	bench) # 2, 4 and 8 ranks beside C, and 2 by way of host memory
		"$here/gputest" bench -nccl "$NCCL" -budget 130s
		;;
	bench8) # more time for 8 ranks
		"$here/gputest" bench -nccl "$NCCL" -ranks 8 -e 1048576 -budget 130s
		;;
	staged) # 4 and 8 ranks by way of host memory
		for n in 4 8; do
			"$here/tutti" bench --engine staged -n $n --op allreduce,broadcast,allgather,reducescatter,alltoall -b 1K -e 32M -f 32 --budget 40ms || return 1
		done
		;;
	suite1) suite 1 ;;
	suite8) suite 8 ;;
	enqueue) # package nccl beside C, three times, and beside an older gputest if there is one; then a Comm
		beside=
		[ ! -x "$here/gputest.old" ] || beside="-beside $here/gputest.old"
		wrong=0
		for i in 1 2 3; do
			# shellcheck disable=SC2086 # they are two words
			"$here/gputest" short -nccl "$NCCL" -only bare -rounds 40 -budget 55s $beside || wrong=1
		done
		"$here/gputest" short -nccl "$NCCL" -only enqueue -rounds 40 -budget 55s || wrong=1
		return $wrong
		;;
	cycles) # 500 communicators in Go, and 500 in C
		"$here/gputest" short -nccl "$NCCL" -only cycles -budget 570s
		;;
	esac
}

# suite runs the conformance suite with so many ranks.
suite() {
	TUTTI_TEST_GPU=1 TUTTI_TEST_RANKS=$1 TUTTI_NCCL_LIBRARY=${OTHER:-$NCCL} "$here/engine.test" -test.run '^TestProcesses$' -test.v
}

# Processes take turns of milliseconds on a GPU, unless they share it by MPS. gputest
# starts that itself; for the rest, it is started here.
mps=
mps_on() {
	command -v nvidia-cuda-mps-control >/dev/null || return 0
	mps=$(mktemp -d)
	export CUDA_MPS_PIPE_DIRECTORY="$mps" CUDA_MPS_LOG_DIRECTORY="$mps"
	nvidia-cuda-mps-control -d || mps_off
}
mps_off() {
	[ -n "$mps" ] || return 0
	echo quit | nvidia-cuda-mps-control
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	rm -rf "$mps"
	mps=
}
trap mps_off EXIT

if [ "${1:-}" = --step ]; then # the script itself, under timeout
	step "$2"
	exit
fi

[ $# -gt 0 ] || set -- $all
for name; do
	limit "$name" >/dev/null || { echo "open.sh: there is no step \"$name\": $all" >&2; exit 2; }
done
table='| step | result | seconds |
| --- | --- | --- |'
failed=0
for name; do
	echo
	echo "## $name"
	case $name in mismatch | staged | suite1 | suite8) mps_on ;; esac
	begin=$(date +%s)
	timeout -k 10 "$(limit "$name")" sh "$0" --step "$name" >"$log/$name.txt" 2>&1
	rc=$?
	mps_off
	case $rc in
	0) result=ok ;;
	124 | 137) result='FAILED: its time was over' failed=1 ;;
	*) result="FAILED: exit status $rc" failed=1 ;;
	esac
	tail -n 160 "$log/$name.txt"
	table="$table
| $name | $result | $(($(date +%s) - begin)) |"
done
printf '\n%s\n\nwhole output: %s\n' "$table" "$log" | tee "$log/steps.txt"
exit $failed
