#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# Jobs whose ranks are somebody else's program, which does not speak to its agent: crashes.
# programs_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(any_program crashes)

case_any_program() {
  # It sees torch's names; a killed node is replaced all the same.
  # shellcheck disable=SC2016 # for the rank's shell
  start any_program --set 'rank.command=["sh", "-c", "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK attempt $HOLDFAST_ATTEMPT; until [ -e /shared/home/enough ]; do sleep 0.2; done"]'
  check "ranks are up" soon 60 ranks_up 1
  local node
  node=$(nth 2)
  mini kill-node "$node"
  check "and up again" soon 120 ranks_up 2
  touch "$home/enough"
  ends_as "done" 0
  check "two attempts" equal "$(result "$run" '.attempts | length')" 2
  check "the environment" equal "$(cat "$home/$run/logs/attempt-0002/rank-00003.log")" "rank 3 of 4 local 1 attempt 2"
  mini revive-node "$node"
}
# ranks_up ATTEMPT
ranks_up() { events "$run" | jq -es --argjson a "$1" 'any(.event == "placement_verified" and .attempt == $a)'; }

case_crashes() {
  # It saves how far it is, which nobody else can see, and crashes thirty times.
  cat >"$home/crashes.sh" <<'END'
n=$(cat "$HOLDFAST_RUN_DIR/saved" || echo 0)
echo $((n + 1)) >"$HOLDFAST_RUN_DIR/saved"
sleep 1.5
[ "$n" -ge 30 ] || exit 9
END
  start crashes --set 'rank.command=["sh", "/shared/home/crashes.sh"]' --set supervise.assumed_progress_s=1 \
    --set cluster.nodes=1 --set cluster.spares=0 --set cluster.ranks_per_node=1
  ends_as "done" 0
  check "attempts" equal "$(result "$run" '.attempts | length')" 31
  check "how far they came is not known" equal "$(result "$run" '.attempts[0].last_step')" null
}

run_alone "$@"
