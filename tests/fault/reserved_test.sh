#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# Nodes on which SLURM reserves cores and memory for itself, and jobs that use one thread of each core.
# reserved_test.sh HOLDFAST TRAIN TOOL; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # for fault.sh
pod_options=(--node-conf "CPUs=32,ThreadsPerCore=2,CoreSpecCount=2,MemSpecLimit=4096")
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"
run_limit=90

start reserved_cores --set train.steps=20
ends_as "done" 0
start one_thread --set train.steps=20 -- --hint=nomultithread
ends_as "done" 0
check "the same bits" equal "$(result one_thread .state_digest)" "$(result reserved_cores .state_digest)"

# The doctor reaches the nodes through steps, too. Its findings on a minipod's nodes do not matter here.
soon 60 all_idle
examined() {
  local report
  report=$(mini exec --chdir /shared/home salloc -N 2 --exclusive --hint=nomultithread holdfast doctor --nodes --fast --json)
  jq -e '.nodes | length == 2 and all(.findings | length > 1)' <<<"$report" || { echo "$report"; false; }
}
check "the doctor sees both nodes" examined

accounts_add_up
conclude
