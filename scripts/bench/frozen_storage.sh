#!/usr/bin/env bash
# What storage that does not answer costs a step: the same job on 2 ranks twice, with its run directory and its log on a file
# system of its own. In the second run that is frozen (fsfreeze) in the middle of training, so that whoever writes to it waits.
# No saves: those that back up may wait (checkpoint.when_busy). As root, on a machine that does nothing else.
#   scripts/bench/frozen_storage.sh BUILD_DIR [SECONDS=60]
# Ends with one line RESULT {json}: the largest delay of a step (its time beyond the median of its run, from the clock on the wall
# between two lines) and the median step of both runs, and how many steps were done in the freeze.
# Exit code 0 only if the bits are the same, metrics.jsonl has every step once, and steps were done in the freeze.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 1)) || die "which build? scripts/bench/frozen_storage.sh build/release"
((EUID == 0)) || die "to mount and freeze a file system, root is needed"
train=$(realpath "$1/src/train/holdfast-train") tokens=$(realpath "$1/tests/train/make_tokens")
frozen_s=${2:-60}
dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-frozen.XXXXXX")
clean_up() {
  fsfreeze -u "$dir/storage" 2>/dev/null || true
  [[ -z ${mpirun-} ]] || kill -KILL "$mpirun" 2>/dev/null || true
  umount -l "$dir/storage" 2>/dev/null || true
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

mkdir "$dir/storage"
truncate -s 256M "$dir/image"
mkfs.ext4 -q "$dir/image"
mount -o loop "$dir/image" "$dir/storage"
"$tokens" "$dir/tokens.bin" 512 100000
cp "$source/tests/fault/model.toml" "$dir/"
cat >"$dir/job.toml" <<TOML
[model]
file = "$dir/model.toml"
[data]
tokens = "$dir/tokens.bin"
[train]
sequence = 128
global_batch = 4
micro_batch = 1
lanes = 2
[checkpoint]
every = 0
TOML

start() { # NAME STEPS: sets `mpirun`
  # shellcheck disable=SC2016 # for the ranks' shell
  mpiexec -n 2 --oversubscribe --bind-to none sh -c 'log=$1; shift; exec "$0" "$@" 2>>"$log"' "$train" "$dir/storage/$1.log" \
    "$dir/job.toml" --run-dir "$dir/storage/$1" --set "train.steps=$2" >"$dir/log" 2>&1 &
  mpirun=$!
}
finish() { wait "$mpirun" || { tail -n 15 "$dir/log" "$dir/storage/"*.log >&2; die "holdfast-train failed (see above)"; }; mpirun=''; }
metrics() { cat "$dir/storage/$1/metrics.jsonl"; }
seconds='(.time[0:19] + "Z" | fromdateiso8601) + ("0" + .time[19:-1] | tonumber)'

step "how long a step takes"
start pace 60 && finish
pace=$(metrics pace | jq -s 'map(.step_s) | sort | .[length / 2 | floor]')
steps=$(jq -n --argjson pace "$pace" --argjson frozen "$frozen_s" '(2 * ($frozen + 10) / $pace) | ceil | if . < 200 then 200 else . end')
say "$pace s; $steps steps"

step "undisturbed"
start undisturbed "$steps" && finish

step "frozen for $frozen_s s"
start frozen "$steps"
until (($(metrics frozen 2>/dev/null | wc -l) * 5 > steps)); do sleep 0.1; done
fsfreeze -f "$dir/storage"
from=$EPOCHREALTIME
sleep "$frozen_s"
to=$EPOCHREALTIME
fsfreeze -u "$dir/storage"
finish

metrics undisturbed | jq -c "{step, at: ($seconds)}" >"$dir/undisturbed.jsonl"
metrics frozen | jq -c "{step, at: ($seconds)}" >"$dir/frozen.jsonl"
digest() { jq -r .state_digest "$dir/storage/$1/result.json"; }
jq -rn --slurpfile a "$dir/undisturbed.jsonl" --slurpfile b "$dir/frozen.jsonl" --argjson from "$from" --argjson to "$to" --argjson steps "$steps" \
  --argjson same "$([[ $(digest undisturbed) == "$(digest frozen)" ]] && echo true || echo false)" '
  def took: [.[10:] | range(1; length) as $i | {at: .[$i].at, s: (.[$i].at - .[$i - 1].at)}];
  def median: sort | .[length / 2 | floor];
  def ms: . * 1e5 | round / 100;
  ($a | took) as $a_took | ($b | took) as $b_took | ($a_took | map(.s) | median) as $a_median | ($b_took | map(.s) | median) as $b_median
  | ($b_took | map(select(.at - .s < $to and .at > $from))) as $during
  | {frozen_s: ($to - $from), steps: $steps, steps_in_freeze: ($b | map(select(.at > $from and .at < $to)) | length),
     undisturbed_median_ms: ($a_median | ms), frozen_median_ms: ($b_median | ms),
     undisturbed_largest_delay_ms: (($a_took | map(.s) | max) - $a_median | ms),
     freeze_median_ms: ($during | map(.s) | median | ms), freeze_largest_delay_ms: (($during | map(.s) | max) - $b_median | ms),
     same_bits: $same, every_step_once: ([$b[].step] == [range(1; $steps + 1)])} as $r
  | "RESULT \($r | tojson)", if $r.same_bits and $r.every_step_once and $r.steps_in_freeze > 1 then empty else error("the freeze was felt") end'
