#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# A job of a higher quality of service preempts a run.
# preempted_test.sh HOLDFAST TRAIN TOOL; see tests/support/fault.sh. Skipped where slurmdbd and MariaDB are not installed.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [[ ${HOLDFAST_TEST_POD-} != *--root* ]]; then
  for program in slurmdbd mariadbd; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || { echo "1..0 # SKIP no $program here"; exit 77; }
  done
fi
# shellcheck disable=SC2034 # for fault.sh
pod_options=(--profile accounting)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(preempted)

case_preempted() {
  start_held preempted --set checkpoint.every=0
  trains_to 10
  local urgent
  urgent=$(mini exec sbatch --parsable --qos=high -N4 --exclusive --output=/dev/null --wrap 'sleep 5')
  check "$run: is over" soon 60 over "$run"
  check "$run: drained" equal "$(result "$run" .status)" drained
  check "$run: exit code 75" equal "$(result "$run" .exit_code)" 75
  check "nothing newer than its last checkpoint" equal "$(result "$run" .durable_step)" "$(result "$run" '.attempts[0].last_step')"
  check "saved within the grace time" at_least 29 "$(save_took)"
  check "the other job got its nodes" soon 60 accounts_hold "$urgent|high|COMPLETED"
  check "the run is back in the queue" soon 60 queued
  rm "$home/$run/result.json"
  check "the next job trains" soon 240 trains_again
  max_lost=0 ends_like_the_undisturbed
  check "sacct knows both jobs of the run" soon 30 accounts_hold "$job|low|COMPLETED"
  mini exec sacct -n -P -D -X -o JobID,QOS,State,ExitCode | sed 's/^/# /'
  every_step_once
}
# Whole seconds from the order to end to the checkpoint.
save_took() {
  events "$run" | jq -rs '(map(select(.event == "checkpoint_durable")) | last.unix) - (map(select(.event == "drain"))[0].unix) | ceil'
}
accounts_hold() { holds "$(mini exec sacct -n -P -D -X -o JobID,QOS,State)" "$1"; }
queued() { [[ $(mini exec squeue -h -j "$job" -o %T) == PENDING ]]; }

run_cases "$@"
