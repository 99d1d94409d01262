#!/usr/bin/env bash
# A first look at scale: 127 real slurmd on this machine, an agent on each, 124 x 8 placeholder ranks (sleep), one node
# lost. Seconds per phase, from the event log and the minipod's fault log. As root.
#   scripts/bench/scale.sh HOLDFAST TRAIN TOOL [ACTIVE=124] [SPARES=3] [RANKS_PER_NODE=8]
# Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
active=${4:-124} spares=${5:-3} ranks_per_node=${6:-8}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-scale.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

begin=$(date +%s.%N)
mini up --nodes $((active + spares))
up_s=$(jq -n "$(date +%s.%N) - $begin")
install_programs "${programs[@]}"
run=scale
submitted=$(date +%s.%N)
job=$(submit $run --set "cluster.nodes=$active" --set "cluster.spares=$spares" --set "cluster.ranks_per_node=$ranks_per_node" \
  --set 'rank.command=["sleep", "100000"]' --set "train.leaves=$((active * ranks_per_node))" --set "train.lanes=$active" --set supervise.start_s=120)
event_seen() { events $run | jq -e --arg e "$1" --argjson a "$2" 'select(.event == $e and .attempt == $a)' >/dev/null; }
soon 180 event_seen placement_verified 1 || { story $run; exit 1; }
node=$(placement $run | sed -n 60p)
mini kill-node "$node"
soon 180 event_seen placement_verified 2 || { story $run; exit 1; }
sleep 5 # is it stable?
false_alarms=$(events $run | jq -s --arg n "$node" 'map(select(.event == "node_lost" and .node != $n)) | length')
mini exec scancel "$job"
soon 60 job_gone "$job" || true

jq -rn --argjson up "$up_s" --argjson submitted "$submitted" --argjson alarms "$false_alarms" --argjson nodes $((active + spares)) --argjson ranks $((active * ranks_per_node)) \
  --slurpfile faults "$dir/faults.jsonl" --slurpfile events <(events $run) '
  def first_of(e; a): [$events[] | select(.event == e and .attempt == a)][0].unix;
  ([$events[] | select(.event == "leader_elected")][0].unix) as $elected
  | $faults[0].unix as $kill | ([$events[] | select(.event == "node_lost")][0].unix) as $lost
  | "RESULT " + ({nodes: $nodes, ranks: $ranks, minipod_up_s: $up, submit_to_leader_s: ($elected - $submitted), leader_to_all_agents_s: (first_of("attempt_planned"; 1) - $elected),
      clear_s: (first_of("attempt_started"; 1) - first_of("attempt_planned"; 1)), start_ranks_s: (first_of("placement_verified"; 1) - first_of("attempt_started"; 1)),
      detected_s: ($lost - $kill), clear_after_loss_s: (first_of("attempt_started"; 2) - $lost), restart_ranks_s: (first_of("placement_verified"; 2) - first_of("attempt_started"; 2)),
      lost_to_ranks_up_s: (first_of("placement_verified"; 2) - $kill), false_alarms: $alarms} | tostring)'
