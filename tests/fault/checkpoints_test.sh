#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Checkpoints that are torn or damaged.
# checkpoints_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(killed_in_checkpoint newest_checkpoint_damaged)

case_killed_in_checkpoint() {
  # Without a local level: the run comes back from the checkpoint before the torn one.
  start killed_in_checkpoint --set checkpoint.local=none --set checkpoint.every=3 # often, so that one is under way when we look
  mid_run 25
  local node
  node=$(nth 2)
  soon 60 compgen -G "$home/$run/checkpoints/*.tmp-*"
  mini kill-node "$node"
  most_lost=10 ends_like_the_undisturbed
  came_back_from 2 shared
  mini revive-node "$node"
}

case_newest_checkpoint_damaged() {
  start newest_checkpoint_damaged --set checkpoint.local=none
  mid_run 30
  # Flip a byte in the newest durable checkpoint, then make the run come back to it.
  local node newest
  node=$(nth 2)
  mini freeze-node "$node"
  newest=$(find "$home/$run/checkpoints" -maxdepth 1 -name 'step-????????' | sort | tail -n 1)
  # (near the end: tensor data; the head holds HDF5's own tables, which the loader does not need)
  printf '\xff\x55\xaa' | dd of="$newest/shard-00001.h5" bs=1 seek=$(($(stat -c %s "$newest/shard-00001.h5") - 5000)) conv=notrunc status=none
  most_lost=20 ends_like_the_undisturbed
  check "a line says why the older one was taken" holds "$(cat "$home/$run"/logs/attempt-*/rank-00000.log)" "$(basename "$newest")"
  mini thaw-node "$node"
}

run_cases "$@"
