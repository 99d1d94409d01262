#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Shared storage that hangs, as NFS hard mounts and Lustre do: each node has a server for /shared that is stopped, and every
# call waits, page faults too, until it goes on. Training does not wait, and nobody is blamed.
# storage_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ -c /dev/fuse ]] || { echo "1..0 # SKIP no /dev/fuse: storage cannot be made to hang"; exit 77; }
pod_options=(--storage fuse --data fuse)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"
# shellcheck source=tests/support/storage.sh
source "$source/tests/support/storage.sh"

all_cases=(all_hang one_hangs leader_hangs killed_while_all_hang takeover_hangs restore_hangs save_hangs cut_off_with_its_storage folder_hangs drilled)
hang_s=${HOLDFAST_HANG_S:-15}

# steps_between FROM TO: steps whose line in metrics.jsonl has a time between two clock times.
steps_between() {
  jq -s --argjson from "$1" --argjson to "$2" \
    'map((.time[0:19] + "Z" | fromdateiso8601) + ("0" + .time[19:-1] | tonumber) | select(. > $from and . < $to)) | length' \
    "$home/$run/metrics.jsonl"
}
# hang [NODE...]: for hang_s; sets from, to. Ranks that restore read storage, and so wait for it: may_wait names them.
hang() {
  local waited=''
  from=$EPOCHREALTIME
  mini hang-shared "$@"
  until [[ $(jq -n "$EPOCHREALTIME - $from >= $hang_s") == true ]]; do
    waited+=$(waiting | grep -v "^${may_wait-nothing} ")
    sleep 0.5
  done
  to=$EPOCHREALTIME
  mini wake-shared "$@"
  check "$run: no loop and no training thread waited for storage" equal "$waited" ""
}
# The run trained all the time (held, it takes five steps a second), in one attempt.
trained_on() {
  ends_like_the_undisturbed 0
  check "$run: one attempt" equal "$(result "$run" '.attempts | length')" 1
  check "$run: no node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost")) | length')" 0
  check "$run: while storage hung, too" at_least "$(steps_between "$from" "$to")" $((${least_steps-3 * hang_s}))
  every_step_once
}

case_all_hang() {
  start_held all_hang --set checkpoint.when_busy=skip
  mid_run 10
  hang
  trained_on
}

case_one_hangs() {
  start_held one_hangs --set checkpoint.when_busy=skip
  mid_run 10
  hang "$(nth 2)"
  trained_on
}

leads_another() { [[ $(leader_of "$run") != "$1" ]]; }
case_leader_hangs() {
  start_held leader_hangs --set checkpoint.when_busy=skip
  mid_run 10
  local first
  first=$(leader_of "$run")
  from=$EPOCHREALTIME
  mini hang-shared "$first"
  check "$run: another node leads" soon "$hang_s" leads_another "$first"
  sleep 3
  to=$EPOCHREALTIME
  mini wake-shared "$first"
  sleep 3
  check "$run: and goes on to lead" leads_another "$first"
  least_steps=5 trained_on
}

# Nothing is decided until it can be written, and then the node that was lost is blamed, and no other.
case_killed_while_all_hang() {
  start_held killed_while_all_hang
  mid_run 10
  local node
  node=$(nth 2)
  mini hang-shared
  sleep 1
  mini kill-node "$node"
  sleep "$hang_s"
  check "$run: nothing was decided" equal "$(events "$run" | jq -rs 'map(select(.event == "attempt_ended")) | length')" 0
  mini wake-shared
  ends_like_the_undisturbed
  check "$run: one node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost").node) | unique | join(" ")')" "$node"
  every_step_once
  mini revive-node "$node"
}

case_takeover_hangs() {
  start_held takeover_hangs
  mid_run 10
  local first
  first=$(leader_of "$run")
  from=$EPOCHREALTIME
  mini kill-node "$first"
  mini hang-shared
  sleep "$hang_s"
  to=$EPOCHREALTIME
  mini wake-shared
  check "$run: another node leads" soon 60 leads_another "$first"
  ends_like_the_undisturbed 0
  every_step_once
  mini revive-node "$first"
}

case_restore_hangs() {
  start_held restore_hangs --set checkpoint.local=none
  mid_run 20
  local node
  node=$(nth 2)
  mini kill-node "$node"
  soon 30 restoring
  may_wait=holdfast-train hang
  max_lost=30 ends_like_the_undisturbed
  came_back_from 2 shared
  mini revive-node "$node"
}
restoring() { events "$run" | jq -es 'any(.event == "attempt_started" and .attempt == 2)' >/dev/null; }

# In the middle of saves, one after the other: the next ones wait for ten seconds, once, and are then dropped.
case_save_hangs() {
  start_held save_hangs --set checkpoint.every=1
  mid_run 10
  hang
  check "$run: saves go on" soon 60 durable "$run" $(($(last_step "$run") + 2))
  check "$run: those that were skipped are counted" at_least "$(events "$run" | jq -s 'map(select(.event == "checkpoint_dropped")) | length')" 2
  least_steps=$(((hang_s - 10) / 2)) trained_on # a loaded machine takes one in two seconds
  check "$run: its checkpoints are sound" mini exec holdfast ckpt verify "/shared/home/$run"
}

# Its writes wait, and land after it was replaced.
case_cut_off_with_its_storage() {
  start_held cut_off_with_its_storage --set checkpoint.every=1
  mid_run 10
  local node
  node=$(nth 2)
  mini cut-link "$node"
  check "training goes on" soon 120 training "$run" 2
  mini heal-link "$node"
  sleep 3
  ends_like_the_undisturbed
  check "$run: its checkpoints are sound" mini exec holdfast ckpt verify "/shared/home/$run"
}

# The same by `holdfast drill`. DRILL_CASES: other cases of configs/drills/storage.toml.
case_drilled() {
  soon 180 all_idle
  # shellcheck disable=SC2046,SC2086 # words
  check "the drill passes" "${programs[0]}" drill storage "$source/tests/fault/job.toml" --minipod "$dir" --report "$dir/drill" \
    --set data.tokens=/shared/home/tokens.bin --set "model.file=$test_model" "${test_sets[@]}" $(printf -- "--only %s " ${DRILL_CASES:-leader_storage_hangs})
  sed 's/^/# /' "$dir/drill.md"
}

case_folder_hangs() {
  # The folder in which the ranks of another program work hangs, beside the run directory, while they are started again.
  # That takes time, and costs no node, no agent and no leader.
  local node agents
  mini exec mkdir -p /data/fuse/work
  # shellcheck disable=SC2016 # for the rank's shell
  start folder_hangs --set rank.directory=/data/fuse/work \
    --set 'rank.command=["sh", "-c", "echo attempt $HOLDFAST_ATTEMPT in $PWD; until [ -e /shared/home/enough ]; do sleep 0.2; done"]'
  check "ranks are up" soon 60 ranks_up 1
  agents=$(agents_of_all)
  node=$(nth 1)
  mini hang-data
  on "$node" pkill -KILL -o -f '^sh -c echo attempt'
  check "they are started again" soon 30 has_event attempt_started 2
  sleep "$hang_s"
  check "and wait" equal "$(ranks_up 2 && echo up)" ""
  mini wake-data
  check "they are up once the folder answers" soon 60 ranks_up 2
  check "no agent was replaced" equal "$(agents_of_all)" "$agents"
  touch "$home/enough"
  ends_as "done" 0
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "no node was lost" equal "$(events "$run" | jq -rs 'map(select(.event == "node_lost").node) | join(" ")')" ""
  check "one leader" equal "$(events "$run" | jq -rs 'map(select(.event == "leader_elected")) | length')" 1
  check "the ranks worked there" equal "$(cat "$home/$run/logs/attempt-0002/rank-00003.log")" "attempt 2 in /data/fuse/work"
}
ranks_up() { has_event placement_verified "$1"; }
# has_event KIND ATTEMPT
has_event() { events "$run" | jq -es --arg e "$1" --argjson a "$2" 'any(.event == $e and .attempt == $a)' >/dev/null; }
agents_of_all() { local n; for n in dgx001 dgx002 dgx003 dgx004; do echo "$n: $(on "$n" pgrep -f '^[^ ]*holdfast agent ' | xargs)"; done; }

run_cases "$@"
