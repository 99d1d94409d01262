#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# A drill, started as a user starts it.
# drills_test.sh HOLDFAST TRAIN TOOL [CASE...]; see tests/support/fault.sh.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

all_cases=(drilled)

case_drilled() {
  # The cases of configs/drills/ci.toml with a baseline, injected faults and case reports: a node and then the spare that
  # took its slot are lost, a node freezes, the leader is cut off.
  check "the drill passes" "${programs[0]}" drill ci "$source/tests/fault/job.toml" --minipod "$dir" --report "$dir/drill" \
    --set data.tokens=/shared/home/tokens.bin --set "model.file=$test_model" "${test_sets[@]}"
  check "its baseline is the undisturbed run" equal "$(jq -r '.cases[].state_digest' "$dir/drill.json" | sort -u)" "$undisturbed"
  check "every run whose ranks were started again came back from saved state" at_least \
    "$(jq '[.cases[] | select(.attempts > 1).restored] | min' "$dir/drill.json")" 1
  sed 's/^/# /' "$dir/drill.md"
  # The same, with a wrong baseline: a case must be able to fail.
  local kept
  kept=$(echo "$home"/drills/baseline-*/result.json)
  jq '.state_digest = "0123456789abcdef"' "$kept" >"$kept.new" && mv "$kept.new" "$kept"
  check "a run with other bits fails" fails_with 1 "${programs[0]}" drill ci "$source/tests/fault/job.toml" --minipod "$dir" --report "$dir/drill" \
    --set data.tokens=/shared/home/tokens.bin --set "model.file=$test_model" "${test_sets[@]}" --only node_frozen
  check "and says so" holds "$(jq -r '.cases[0].differences[]' "$dir/drill.json")" "other bits"
}
fails_with() { local code=$1; shift; "$@"; (($? == code)); }

run_cases "$@"
