#!/usr/bin/env bash
# What shared storage that hangs costs a run: the same job on a minipod of four nodes three times; undisturbed, with the
# storage of all nodes hanging for SECONDS in the middle of training, and with that of the leader's node. Every call waits,
# page faults too. As root, on a machine that does nothing else.
#   scripts/bench/hung_storage.sh HOLDFAST TRAIN TOOL [SECONDS=600]
# Ends with one line RESULT {json}: median step while storage hung beside that of the same steps of the undisturbed run, and
# their ratio; the longest step of both; how often the first thread of a process of Holdfast was seen to wait for storage, of
# how many looks; attempts, nodes lost, saves dropped; how long until another leader led. Exit code 0 only if the bits are the
# same, metrics.jsonl has every step once, no attempt ended and no node was lost.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 3)) || die "which programs? scripts/bench/hung_storage.sh HOLDFAST TRAIN TOOL"
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
hang_s=${4:-600}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-hung.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck source=tests/support/storage.sh
source "$source/tests/support/storage.sh"
# shellcheck disable=SC2154 # pod and dir are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 4 --storage fuse
install_programs "${programs[@]}"
make_tokens
seconds='(.time[0:19] + "Z" | fromdateiso8601) + ("0" + .time[19:-1] | tonumber)'

run_to_end() { # NAME STEPS: submits; the caller waits
  run=$1
  soon 180 all_idle
  job=$(submit "$run" --set "train.steps=$2" --set checkpoint.every=200)
  soon 120 step_reached "$run" 1 || { show_record "$run"; exit 1; }
}
ends() {
  soon $((4 * hang_s + 600)) over "$run" || { show_record "$run"; exit 1; }
  soon 60 job_gone "$job"
}

step "how long a step takes"
run_to_end pace 400
ends
steps=$(jq -s --argjson s "$hang_s" '(map(.step_s) | sort | .[length / 2 | floor]) as $pace | (($s + 60) * 1.2 / $pace) | ceil' "$home/pace/metrics.jsonl")
say "$steps steps"

step "undisturbed"
run_to_end undisturbed "$steps"
ends

step "the storage of all nodes hangs for $hang_s s"
run_to_end all "$steps"
soon 300 step_reached all $((steps / 20))
from=$EPOCHREALTIME looks=0 waited=0
mini hang-shared
while [[ $(jq -n "$EPOCHREALTIME - $from < $hang_s") == true ]]; do
  looks=$((looks + 1))
  waited=$((waited + $(waiting | wc -l)))
  sleep 2
done
to=$EPOCHREALTIME
mini wake-shared
ends

step "that of the leader's node hangs"
run_to_end leader "$steps"
soon 300 step_reached leader $((steps / 20))
first=$(leader_of leader)
leads_another() { [[ $(leader_of leader) != "$first" ]]; }
mini hang-shared "$first"
soon 60 leads_another || true
sleep 10
mini wake-shared "$first"
ends

digest() { result "$1" .state_digest; }
lost() { events "$1" | jq -s 'map(select(.event == "node_lost")) | length'; }
whole() { jq -s --argjson n "$steps" '[.[].step] == [range(1; $n + 1)]' "$home/$1/metrics.jsonl"; }
takeover=$(events leader | jq -s --slurpfile faults <(jq -c 'select(.fault == "hang-shared")' "$dir/faults.jsonl") \
  '(map(select(.event == "leader_elected"))[1].unix) - ($faults | last.unix)')
jq -c "{step, step_s, at: ($seconds)}" "$home/all/metrics.jsonl" >"$dir/all.jsonl"
jq -c '{step, step_s}' "$home/undisturbed/metrics.jsonl" >"$dir/undisturbed.jsonl"
good=true
[[ $(digest all) == "$(digest undisturbed)" && $(digest leader) == "$(digest undisturbed)" ]] || good=false
[[ $(whole all) == true && $(whole leader) == true ]] || good=false
[[ $(lost all) == 0 && $(lost leader) == 0 ]] || good=false
[[ $(result all '.attempts | length') == 1 && $(result leader '.attempts | length') == 1 ]] || good=false
jq -rn --slurpfile a "$dir/undisturbed.jsonl" --slurpfile b "$dir/all.jsonl" --argjson from "$from" --argjson to "$to" --argjson steps "$steps" \
  --argjson looks "$looks" --argjson waited "$waited" --argjson takeover "$takeover" --argjson good "$good" \
  --argjson dropped "$(events all | jq -s 'map(select(.event == "checkpoint_dropped")) | length')" '
  def median: sort | .[length / 2 | floor];
  ($b | map(select(.at > $from and .at < $to))) as $hung
  | ($a | map(select(.step >= $hung[0].step and .step <= $hung[-1].step))) as $same
  | "RESULT " + ({hung_s: ($to - $from), steps: $steps, steps_while_hung: ($hung | length),
      step_s: {hung: ($hung | map(.step_s) | median), undisturbed: ($same | map(.step_s) | median)},
      ratio: (($hung | map(.step_s) | median) / ($same | map(.step_s) | median)),
      longest_step_s: {hung: ($hung | map(.step_s) | max), undisturbed: ($same | map(.step_s) | max)},
      looks: $looks, first_threads_that_waited: $waited, saves_dropped: $dropped, another_leader_s: $takeover, good: $good} | tostring)'
[[ $good == true ]]
