#!/usr/bin/env bash
# A lost node at scale: 127 real slurmd on this machine, an agent on each, 124 x 8 placeholder ranks (sleep); KILLS times
# an active node loses power and comes back as a spare. Seconds per phase, from the event log and the minipod's fault log.
# Placeholders make no steps: a run goes on when all ranks are up where they were planned. With MPI_RANKS, the program of that
# name of the tests, they are ranks of MPI, and `ready_s` is until all have started MPI and added up their numbers. As root.
#   scripts/bench/scale.sh HOLDFAST TRAIN TOOL [KILLS=5] [ACTIVE=124] [SPARES=3] [RANKS_PER_NODE=8] [MPI_RANKS]
# HOLDFAST_TEST_POD and HOLDFAST_TEST_BUNDLE as for the fault tests: words for `minipod up`, and a bundle for another system.
# Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
kills=${4:-5} active=${5:-124} spares=${6:-3} ranks_per_node=${7:-8} mpi_ranks=${8-}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-scale.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod and dir are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

begin=$(date +%s.%N)
# shellcheck disable=SC2086 # words
mini up --nodes $((active + spares)) ${HOLDFAST_TEST_POD-}
up_s=$(jq -n "$(date +%s.%N) - $begin")
install_programs "${programs[@]}" ${mpi_ranks:+"$mpi_ranks"}
rank=(--set 'rank.command=["sleep", "100000"]')
if [[ -n $mpi_ranks ]]; then
  rank=(--set 'rank.command=["/shared/opt/holdfast/bin/mpi_ranks", "stay"]' --set rank.launch=mpi)
fi
run=scale
submitted=$(date +%s.%N)
job=$(submit $run --set "cluster.nodes=$active" --set "cluster.spares=$spares" --set "cluster.ranks_per_node=$ranks_per_node" \
  "${rank[@]}" --set "train.global_batch=$((active * ranks_per_node))" --set "train.lanes=$active" --set supervise.start_s=120 \
  --set supervise.max_restarts=100000 --set supervise.max_node_failures=100000 --set supervise.max_without_checkpoint=100000)
event_seen() { events $run | jq -es --arg e "$1" --argjson a "$2" 'any(.event == $e and .attempt == $a)' >/dev/null; }
attempt() { events $run | jq -s 'map(select(.event == "placement_verified").attempt) | max'; }
# ready ATTEMPT: when all MPI ranks of an attempt were there, Unix seconds; null for placeholders.
ready() {
  local log
  printf -v log '%s/logs/attempt-%04d/rank-00000.log' "$home/$run" "$1"
  [[ -n $mpi_ranks ]] || { echo null; return; }
  soon 180 grep -qs ^ready "$log" || { show_record $run >&2; exit 1; }
  sed -n 's/^ready //p' "$log"
}
came_back() { events $run | jq -es --arg n "$1" 'map(select(.node == $n)) | last.event == "node_returned"' >/dev/null; }
soon 180 event_seen placement_verified 1 || { show_record $run; exit 1; }
first_ready=$(ready 1)
for ((k = 1; k <= kills; ++k)); do
  now=$(attempt)
  batch=$(mini exec squeue -h -j "$job" -o %B)
  node=$(placement $run | grep -vx "$(leader_of $run)" | grep -vx "$batch" | shuf -n 1)
  mini kill-node "$node"
  soon 180 event_seen placement_verified $((now + 1)) || { show_record $run; exit 1; }
  jq -cn --argjson a $((now + 1)) --argjson at "$(ready $((now + 1)))" '{attempt: $a, at: $at}' >>"$dir/ready.jsonl"
  mini revive-node "$node"
  soon 120 came_back "$node" || echo "# $node has not come back"
  sleep 3 # is it stable?
  echo "kill $k of $kills: $node, attempt $(attempt) runs"
done
mini exec scancel "$job"
soon 60 job_gone "$job" || true

jq -rn --argjson up "$up_s" --argjson submitted "$submitted" --argjson nodes $((active + spares)) --argjson ranks $((active * ranks_per_node)) \
  --argjson first_ready "$first_ready" --slurpfile ready "$dir/ready.jsonl" --slurpfile faults <(jq -c 'select(.fault == "kill-node")' "$dir/faults.jsonl") --slurpfile events <(events $run) '
  def at(p): sort | .[([(length * p | ceil) - 1, 0] | max)] | . * 1000 | round / 1000;
  def stats: {p50: at(0.5), p99: at(0.99)};
  def first_of(e; a): [$events[] | select(.event == e and .attempt == a)][0].unix;
  ([$events[] | select(.event == "leader_elected")][0].unix) as $elected
  | [$faults[] | . as $k
      | ([$events[] | select(.event == "node_lost" and .node == $k.node and .unix >= $k.unix)][0].unix) as $lost
      | ([$events[] | select(.event == "attempt_planned" and .unix >= $lost)][0]) as $planned
      | {detect_s: ($lost - $k.unix), decide_s: ($planned.unix - $lost), clear_s: (first_of("attempt_started"; $planned.attempt) - $planned.unix),
         launch_s: (first_of("placement_verified"; $planned.attempt) - first_of("attempt_started"; $planned.attempt)),
         ranks_up_s: (first_of("placement_verified"; $planned.attempt) - $k.unix)}
      + ([$ready[] | select(.attempt == $planned.attempt and .at != null) | {ready_s: (.at - $k.unix)}][0] // {})] as $rows
  | "RESULT " + ({nodes: $nodes, ranks: $ranks, minipod_up_s: $up, submit_to_leader_s: ($elected - $submitted),
      leader_to_all_agents_s: (first_of("attempt_planned"; 1) - $elected), clear_s: (first_of("attempt_started"; 1) - first_of("attempt_planned"; 1)),
      start_ranks_s: (first_of("placement_verified"; 1) - first_of("attempt_started"; 1)),
      ready_s: (if $first_ready then $first_ready - first_of("attempt_started"; 1) else null end), kills: ($rows | length),
      after_a_kill: ($rows[0] | keys | map(. as $name | {key: $name, value: ($rows | map(.[$name]) | stats)}) | from_entries),
      false_alarms: ([$events[] | select(.event == "node_lost" and (.node as $n | $faults | map(.node) | index($n)) == null)] | length)} | tostring)'
