#!/usr/bin/env bash
# How long a lost node costs: kills an active node KILLS times in one running job on a minipod of 4 real SLURM nodes
# (SlurmdTimeout=300) and times each from the minipod's fault log to the leader's node_lost event (detected) and to the
# next attempt's first new step (recovered). Each killed node is revived and comes back as a spare. As root.
#   scripts/bench/recovery.sh HOLDFAST TRAIN TOOL [KILLS=10]
# Ends with one line RESULT {json}: seconds and steps, and recovered as a multiple of the median step.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
kills=${4:-10}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 4
install_programs "${programs[@]}"
make_tokens
run=bench
job=$(submit $run --set train.steps=1000000)
soon 120 training $run 1
for ((k = 1; k <= kills; ++k)); do
  soon 120 durable $run $((10 * k))
  # An active node that is not the batch host, at a random moment within a second.
  batch=$(mini exec squeue -h -j "$job" -o %B)
  node=$(placement $run | grep -vx "$batch" | shuf -n 1)
  sleep "0.$((RANDOM % 1000))"
  mini kill-node "$node"
  soon 60 training $run $((k + 1))
  mini revive-node "$node"
  soon 120 eval "events $run | jq -e --arg n $node 'select(.event == \"node_returned\" and .node == \$n)' | grep -c event | grep -qx $(events $run | jq -rs --arg n "$node" 'map(select(.event == "node_lost" and .node == $n)) | length')" || echo "# $node has not come back"
  echo "kill $k of $kills: $node, $(last_step $run) steps so far"
done
mini exec scancel "$job"
soon 60 job_gone "$job" || true

jq -sn --slurpfile faults <(jq -c 'select(.fault == "kill-node")' "$dir/faults.jsonl") --slurpfile events <(events $run) --slurpfile metrics "$home/$run/metrics.jsonl" '
  def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def stats: {median: median, min: min, max: max};
  def after($t; f): [$events[] | select(.unix >= $t and f)] | first;
  [$faults[] | . as $k
    | after($k.unix; .event == "node_lost" and .node == $k.node) as $lost
    | after($lost.unix; .event == "attempt_ended") as $ended
    | after($lost.unix; .event == "attempt_started") as $started
    | after($lost.unix; .event == "placement_verified") as $up
    | after($lost.unix; .event == "restored") as $restored
    | after($lost.unix; .event == "first_step") as $step
    | {node: $k.node, detected_s: ($lost.unix - $k.unix), recovered_s: ($step.unix - $k.unix), lost_steps: ($ended.step - $restored.step),
       clear_s: ($started.unix - $lost.unix), start_s: ($up.unix - $started.unix), restore_s: ($restored.unix - $up.unix), first_step_s: ($step.unix - $restored.unix)}] as $rows
  | ($metrics | map(.step_s) | median) as $step_s
  | ($rows[] | "\(.node) detected \(.detected_s * 100 | round / 100) s, recovered \(.recovered_s * 100 | round / 100) s, \(.lost_steps) steps again (clear \(.clear_s * 100 | round / 100), start \(.start_s * 100 | round / 100), restore \(.restore_s * 100 | round / 100), first step \(.first_step_s * 100 | round / 100))"),
    "RESULT " + ({kills: ($rows | length), detected_s: ($rows | map(.detected_s) | stats), recovered_s: ($rows | map(.recovered_s) | stats),
                  lost_steps: ($rows | map(.lost_steps) | stats), clear_s: ($rows | map(.clear_s) | stats), start_s: ($rows | map(.start_s) | stats),
                  restore_s: ($rows | map(.restore_s) | stats), first_step_s: ($rows | map(.first_step_s) | stats), step_s: $step_s,
                  recovered_in_steps: (($rows | map(.recovered_s) | median) / $step_s)} | tostring)' -r
