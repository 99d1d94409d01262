#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Nodes on which each job has a /tmp and a /dev/shm of its own (job_container/tmpfs): agents and ranks of a job share them, so
# that a restarted rank finds its snapshot, and nothing stays behind.
# private_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # for fault.sh
pod_options=(--profile private)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(rank_and_node_killed)

case_rank_and_node_killed() {
  start_held private --set checkpoint.every=0
  trains_to 10
  local first second agent
  first=$(nth 1) second=$(nth 2)
  check "the node sees nothing of the run in its /dev/shm" nothing_stays_on "$first"
  agent=$(on "$first" pgrep -o -x holdfast)
  check "its agent does" holds "$(on "$first" nsenter -t "$agent" -m find /dev/shm -name 'holdfast-*')" holdfast-
  check "$run: a rank is killed" signal_rank KILL "$first"
  check "training goes on" soon 120 training "$run" 2
  mini kill-node "$second"
  check "and again" soon 120 training "$run" 3
  ends_like_the_undisturbed 2
  check "the rank came back from memory" holds "local peer" "$(result "$run" '.attempts[1].restored_from.level')"
  came_back_from 3 peer
  every_step_once
  check "the job's folders are gone" soon 30 no_folders "$first"
}
no_folders() { [[ -z $(on "$1" find /run/slurmd/jobs -mindepth 1 -maxdepth 1 -name '[0-9]*') ]]; }

run_cases "$@"
