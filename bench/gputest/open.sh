#!/bin/sh
# Runs the checks that need a machine with one real GPU. The machine needs no Go
# installation: "make gpu-open" puts this script and all programs that it runs into
# out/open.
#
#	NCCL=/path/libnccl.so.2 OTHER=/other/libnccl.so.2 out/open/open.sh shrink mismatch
#
# The arguments name the steps to run, one after the other; without arguments all steps
# run. Each step has a time limit. A step runs even if another one failed, unless there
# is no time left. At the end the script prints a table.
#
# Variables:
#	NCCL	path of libnccl; default: the one that is found
#	OTHER	path of another version for the conformance suite; default: NCCL
#	TIME	seconds for all steps; default: 580
#	OUT	folder for the logs; default: log, next to this script
set -u
start=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd)
log=${OUT:-$here/log}
NCCL=${NCCL:-}
OTHER=${OTHER:-}
TIME=${TIME:-580}
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"

# The steps in order of importance, and their time limits in seconds.
all='shrink mismatch bench calls staged suite1 suite8 enqueue cycles'
limit() {
	case $1 in
	shrink) echo 180 ;;
	mismatch) echo 180 ;;
	bench) echo 300 ;;
	calls) echo 180 ;;
	staged) echo 60 ;;
	suite1) echo 120 ;;
	suite8) echo 240 ;;
	enqueue) echo 240 ;;
	cycles) echo 570 ;;
	*) return 1 ;;
	esac
}

# step runs step $1 within $2 seconds.
step() {
	budget=$(($2 - 20)) # the rest is for cleaning up
	wrong=0
	case $1 in
	shrink) # four ranks: two are killed and two others are added; without MPS
		"$here/gputest" shrink -nccl "$NCCL" -rounds 5 -budget ${budget}s
		;;
	mismatch) # ranks that make different calls
		"$here/faults" mismatch --engine nccl --nccl "$NCCL"
		;;
	bench) # 2, 4 and 8 ranks compared with C, and 2 with host staging
		"$here/gputest" bench -nccl "$NCCL" -budget ${budget}s
		;;
	calls) # the same, one operation at a time
		"$here/gputest" bench -nccl "$NCCL" -e 1048576 -ahead 1 -budget ${budget}s
		;;
	staged) # 4 and 8 ranks with host staging
		for n in 4 8; do
			"$here/tutti" bench --engine staged -n $n --op allreduce,broadcast,allgather,reducescatter,alltoall -b 1K -e 32M -f 32 --budget 40ms || wrong=1
		done
		return $wrong
		;;
	suite1) suite 1 ;;
	suite8) suite 8 ;;
	enqueue) # package nccl compared with C, three times, and with an older gputest if there is one; then a Comm
		set -- short -nccl "$NCCL" -rounds 40 -budget $((budget / 4))s
		[ ! -x "$here/gputest.old" ] || old=$here/gputest.old
		for _ in 1 2 3; do
			"$here/gputest" "$@" -only bare -beside "${old:-}" || wrong=1
		done
		"$here/gputest" "$@" -only enqueue || wrong=1
		return $wrong
		;;
	cycles) # 500 communicators in Go, and 500 in C
		"$here/gputest" short -nccl "$NCCL" -only cycles -budget ${budget}s
		;;
	esac
}

# suite runs the conformance suite with $1 ranks. The ranks print to files, which the test
# removes when it completes.
suite() {
	TMPDIR=$(mktemp -d) && export TMPDIR
	TUTTI_TEST_GPU=1 TUTTI_TEST_RANKS=$1 TUTTI_NCCL_LIBRARY=${OTHER:-$NCCL} "$here/engine.test" -test.run '^TestProcesses$' -test.v
}
suite_end() {
	case ${TMPDIR:-} in "$1" | '') return 0 ;; esac
	find "$TMPDIR" -type f -name out | sort | while read -r file; do
		echo "rank $(($(expr "$file" : '.*/0*\([1-9][0-9]*\)/out$') - 1)) was here:"
		tail -n 5 "$file"
	done
	rm -rf "$TMPDIR"
}

# Without MPS, processes use the GPU in time slices of milliseconds. gputest starts MPS
# itself; mps_on starts it for the other programs. MPS does not end while a process that
# uses it hangs, so mps_off has a time limit.
mps=
mps_on() {
	command -v nvidia-cuda-mps-control >/dev/null || return 0
	mps=$(mktemp -d)
	export CUDA_MPS_PIPE_DIRECTORY="$mps" CUDA_MPS_LOG_DIRECTORY="$mps"
	timeout -k 1 15 nvidia-cuda-mps-control -d >"$log/mps.txt" 2>&1 </dev/null || { echo "without MPS:" && cat "$log/mps.txt" && mps_off; }
}
mps_off() {
	[ -n "$mps" ] || return 0
	echo quit | timeout -k 1 15 nvidia-cuda-mps-control >>"$log/mps.txt" 2>&1 || echo "MPS was not ended"
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	rm -rf "$mps"
	mps=
}

if [ "${1:-}" = --step ]; then # the script itself, under timeout
	before=${TMPDIR:-}
	trap 'suite_end "$before"' EXIT
	trap 'exit 143' TERM # runs after the current command has ended
	step "$2" "$3"
	exit
fi

[ $# -gt 0 ] || set -- $all
for name; do
	limit "$name" >/dev/null || { echo "open.sh: there is no step \"$name\": $all" >&2; exit 2; }
done
for file in gputest faults tutti engine.test; do
	[ -x "$here/$file" ] || { echo "open.sh: $here/$file is not there, or cannot be run: make gpu-open" >&2; exit 2; }
done
mkdir -p "$log" || exit 2
trap mps_off EXIT

# Without a library, faults would use the fake GPU.
about() { TUTTI_NCCL_LIBRARY=$1 timeout -k 1 60 "$here/gputest" about 2>&1; }
what=$(about "$NCCL") || { echo "open.sh: there is no GPU or no NCCL: $what" >&2; exit 1; }
echo "$what"
NCCL=$(echo "$what" | sed -n 's/.*(\(.*\))$/\1/p' | tail -n 1)
[ -n "$NCCL" ] || { echo "open.sh: which NCCL is that?" >&2; exit 1; }
[ -z "$OTHER" ] || about "$OTHER" || echo "OTHER cannot be used"
export NCCL OTHER

table='| step | result | seconds |
| --- | --- | --- |'
failed=0
for name; do
	begin=$(date +%s)
	echo
	echo "## $name"
	seconds=$(limit "$name")
	left=$((TIME - (begin - start) - 10)) # leaves time for the kill and the table
	[ "$seconds" -le "$left" ] || seconds=$left
	if [ "$seconds" -lt 30 ]; then
		result='not begun: there is no time left' failed=1
	else
		case $name in mismatch | staged | suite1 | suite8) mps_on ;; esac
		# In the background, so that its process group is known.
		timeout -k 10 "$seconds" sh "$0" --step "$name" "$seconds" >"$log/$name.txt" 2>&1 &
		group=$!
		wait $group
		rc=$?
		kill -KILL -$group 2>/dev/null # its remaining processes
		mps_off
		case $rc in
		0) result=ok ;;
		124 | 137) result="FAILED: its $seconds s were over" failed=1 ;;
		*) result="FAILED: exit status $rc" failed=1 ;;
		esac
		if [ "$(wc -l <"$log/$name.txt")" -le 160 ]; then
			cat "$log/$name.txt"
		else
			head -n 60 "$log/$name.txt"
			echo ...
			tail -n 90 "$log/$name.txt"
		fi
	fi
	table="$table
| $name | $result | $(($(date +%s) - begin)) |"
	echo "$table" >"$log/steps.txt"
done
printf '\n%s\n\nwhole output: %s\n' "$table" "$log"
exit $failed
