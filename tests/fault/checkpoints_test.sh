#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Checkpoints that are torn or damaged, or cannot be read.
# checkpoints_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
unset HOLDFAST_TEST_FAST # killed_in_checkpoint looks for a moment inside a save, which hardly lasts with the small model
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(killed_in_checkpoint newest_checkpoint_damaged checkpoints_away newer_format)

case_killed_in_checkpoint() {
  # Without a local level: the run restores the checkpoint before the torn one. With this time limit a node that stops
  # for a moment is not taken for lost.
  start_held killed_in_checkpoint --set checkpoint.local=none --set checkpoint.every=1 --set supervise.node_silence_ms=8000 \
    --set supervise.hang_floor_s=60
  mid_run 10
  local node
  node=$(nth 2)
  soon 60 stands_still_in_checkpoint "$node"
  check "$run: $node stands still in the middle of a checkpoint" test -n "$torn"
  mini kill-node "$node"
  max_lost=10 ends_like_the_undisturbed
  came_back_from 2 shared
  check "not from the torn one" at_least $((torn - 1)) "$(result "$run" '.attempts[1].restored_from.step')"
  mini revive-node "$node"
}
# Sets `torn`: the step that can never become durable, for the votes of this node are missing.
stands_still_in_checkpoint() {
  # From within: a save takes milliseconds.
  # shellcheck disable=SC2016 # for the node's shell
  on "$1" timeout 20 bash -c 'ranks=$(pgrep -x holdfast-train)
    until compgen -G "$0/step-*.tmp-*" >/dev/null; do :; done
    kill -STOP $ranks' "/shared/home/$run/checkpoints"
  mini freeze-node "$1"
  sleep 0.3 # one that has all its votes is committed meanwhile
  torn=$(find "$home/$run/checkpoints" -maxdepth 1 -name 'step-*.tmp-*' | sed -nE 's/.*step-0*([0-9]+)\.tmp-.*/\1/p' | sort -n | tail -n 1)
  [[ -n $torn ]] || { mini thaw-node "$1"; false; }
}

case_newest_checkpoint_damaged() {
  start_held newest_checkpoint_damaged --set checkpoint.local=none
  mid_run 30 # two checkpoints at least
  # Flip a byte in the newest durable checkpoint, then make the run restore it.
  local node newest
  node=$(nth 2)
  mini freeze-node "$node"
  newest=$(find "$home/$run/checkpoints" -maxdepth 1 -name 'step-????????' | sort | tail -n 1)
  # (near the end is tensor data; the start of the file has tables of HDF5 that the loader does not need)
  printf '\xff\x55\xaa' | dd of="$newest/shard-00001.h5" bs=1 seek=$(($(stat -c %s "$newest/shard-00001.h5") - 5000)) conv=notrunc status=none
  # Steps since the one before the damaged one; the next may not have been durable yet.
  max_lost=29 ends_like_the_undisturbed
  check "a line says why the older one was taken" holds "$(cat "$home/$run"/logs/attempt-*/rank-00000.log)" "$(basename "$newest")"
  mini thaw-node "$node"
}

said() { grep -qs "$2" "$home/$run/logs/attempt-000$1/"*.log; }

# The content of a missing folder is unknown: the run waits for it and does not start from the beginning.
case_checkpoints_away() {
  start_held checkpoints_away --set checkpoint.local=none
  mid_run 30
  local node
  node=$(nth 2)
  mini kill-node "$node"
  mv "$home/$run/checkpoints" "$home/$run/away" # seconds before the next attempt looks
  check "$run: the ranks wait for the folder" soon 60 said 2 "cannot be read now.*trying again"
  # The file system is not mounted, but its mount point exists.
  mkdir "$home/$run/checkpoints"
  sleep 2
  check "$run: and do not begin again" equal "$(result_so_far)" 1
  rmdir "$home/$run/checkpoints"
  mv "$home/$run/away" "$home/$run/checkpoints"
  max_lost=30 ends_like_the_undisturbed
  came_back_from 2 shared
  mini revive-node "$node"
}
# Attempts that have restored a checkpoint.
result_so_far() { events "$run" | jq -s 'map(select(.event == "restored")) | length'; }

raise_schema=$(dirname "${programs[0]}")/../tests/checkpoint/raise_schema # of the same build
# Another version may have written them: no node is replaced, and no other attempt helps.
case_newer_format() {
  local before manifest
  start_held newer_format --set checkpoint.local=none
  mid_run 30
  mini exec holdfast ctl "/shared/home/$run" stop >/dev/null
  ends_as stopped 93
  for manifest in "$home/$run"/checkpoints/step-*/manifest.json; do "$raise_schema" "$manifest" 99; done
  before=$(cd "$home/$run/checkpoints" && find . -type f -exec sha256sum {} + | sort)
  rm "$home/$run/result.json" # over() looks at it
  start newer_format --set checkpoint.local=none
  ends_as failed 93
  check "$run: it says which file is of a newer format" holds "$(result "$run" .why)" manifest.json
  check "$run: nothing was replaced" equal "$(cd "$home/$run/checkpoints" && find . -type f -exec sha256sum {} + | sort)" "$before"
}

run_cases "$@"
