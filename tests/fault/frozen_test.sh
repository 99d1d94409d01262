#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Storage that is frozen (fsfreeze): all may be read, and who changes anything waits, on every node, and cannot be killed. It is
# the shared file system, or one beside it, /data/ext4.
# frozen_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pod_begin() {
  mkdir -p "$dir/shared"
  truncate -s 2G "$dir/image"
  mkfs.ext4 -q "$dir/image" && mount -o loop "$dir/image" "$dir/shared" && return
  echo "1..0 # SKIP no image can be mounted here"
  exit 77
}
pod_end() {
  fsfreeze -u "$dir/shared" 2>/dev/null
  umount -l "$dir/shared"
}
pod_options=(--data ext4)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(trains_on taken_over data_frozen)

freeze_for() {
  fsfreeze -f "$dir/shared"
  sleep "$1"
  fsfreeze -u "$dir/shared"
}

case_trains_on() {
  start_held trains_on --set checkpoint.when_busy=skip
  mid_run 10
  freeze_for 15
  ends_like_the_undisturbed 0
  check "$run: one attempt" equal "$(result "$run" '.attempts | length')" 1
  check "$run: no node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost")) | length')" 0
  check "$run: one leader" equal "$(events "$run" | jq -rs 'map(select(.event == "leader_elected")) | length')" 1
  every_step_once
}

# The leader is lost while nobody can create the file of a term: several candidates wait for theirs.
leads_another() { [[ $(leader_of "$run") != "$1" ]]; }
case_taken_over() {
  start_held taken_over
  mid_run 10
  local first
  first=$(leader_of "$run")
  fsfreeze -f "$dir/shared"
  mini kill-node "$first" 2>/dev/null & # it cannot write its log before the storage is back
  sleep 15
  fsfreeze -u "$dir/shared"
  wait
  check "$run: another node leads" soon 60 leads_another "$first"
  ends_like_the_undisturbed 0
  # It may be over before the silence of that node is noticed.
  check "$run: no other node was lost" equal "$(events "$run" | jq -rs --arg n "$first" 'map(select(.event == "node_lost" and .node != $n).node) | join(" ")')" ""
  mini revive-node "$first"
}

# Ranks that write to another file system cannot be killed, on every node that trains: none of them is blamed.
ranks_up() { events "$run" | jq -es --argjson a "$1" 'any(.event == "placement_verified" and .attempt == $a)' >/dev/null; }
waits_for_old_ranks() { events "$run" | jq -es 'any(.event == "old_ranks_remain")' >/dev/null; }
case_data_frozen() {
  cat >"$home/frozen_rank.sh" <<'END'
while ! [ -e /shared/home/enough ]; do
  if [ "$RANK" -gt 0 ]; then echo >"/data/ext4/rank$RANK"; elif [ -e /shared/home/fail ]; then rm /shared/home/fail; exit 1; fi
  sleep 0.05
done
END
  start data_frozen --set supervise.clear_s=2 --set 'rank.command=["sh", "/shared/home/frozen_rank.sh"]'
  check "$run: ranks are up" soon 60 ranks_up 1
  mini freeze-data
  mini exec touch /shared/home/fail
  check "$run: the next attempt waits for the old ranks" soon 30 waits_for_old_ranks
  sleep 3
  local status
  status=$(mini exec holdfast status "/shared/home/$run")
  check "$run: status says so" holds "$status" "old ranks have not ended on 2 of 2 nodes"
  check "$run: and names what they wait for" holds "$status" "waits in the kernel (state D) in openat of /data/ext4/rank"
  mini thaw-data
  check "$run: ranks are up again" soon 60 ranks_up 2
  mini exec touch /shared/home/enough
  ends_as "done" 0
  check "$run: no node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost" or .event == "node_suspected")) | length')" 0
  check "$run: two attempts" equal "$(result "$run" '.attempts | length')" 2
}

run_cases "$@"
