#!/usr/bin/env bash
# How long a commit takes at scale: 127 real slurmd on this machine, an agent on each, 127 x 8 placeholder ranks that send the
# votes of Llama 2 70B, fully sharded, on checkpoints of which only the names and sizes exist. Each of the SAVES is voted on
# within another time: 0, 20, 0, 20, ... s. On a real cluster every node has processors of its own for its ranks and its agent;
# here all of them share the machine's, which is most of the time when all ranks vote at once. As root.
#   scripts/bench/commit_votes.sh HOLDFAST TRAIN TOOL VOTE_RANK MAKE_VOTES [SAVES=4] [NODES=127] [RANKS_PER_NODE=8]
# Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")" "$(realpath "$4")" "$(realpath "$5")")
saves=${6:-4} nodes=${7:-127} ranks_per_node=${8:-8}
ranks=$((nodes * ranks_per_node))
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-votes.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

timeout 600 "$pod" up --nodes "$nodes"
install_programs "${programs[@]}"
run=votes bin=/shared/opt/holdfast/bin
job=$(submit $run --set "cluster.nodes=$nodes" --set cluster.spares=0 --set "cluster.ranks_per_node=$ranks_per_node" \
  --set "rank.command=[\"$bin/vote_rank\", \"/shared/home/payloads\"]" --set "train.global_batch=$ranks" --set "train.lanes=$nodes" \
  --set supervise.start_s=300)
event_seen() { events $run | jq -es --arg e "$1" --argjson n "$2" 'any(.event == $e and (.attempt == $n or .step == $n))' >/dev/null; }
decided() { event_seen checkpoint_durable "$1" || event_seen checkpoint_dropped "$1"; }
all_heard() { (($(cat "$home/$run"/logs/attempt-*/rank-*.log 2>/dev/null | jq -cR --argjson s "$1" 'fromjson? | select(.step == $s)' | wc -l) >= ranks)); }
soon 400 event_seen placement_verified 1 || { show_record $run; exit 1; }
term=$(events $run | jq -s 'map(select(.event == "attempt_planned"))[0].term')
for ((k = 1; k <= saves; ++k)); do
  timeout 900 "$pod" exec make_votes "/shared/home/$run/checkpoints" "/shared/home/payloads/$k" \
    /shared/opt/holdfast/share/holdfast/configs/models/llama2-70b.toml $((100 * k)) "$term" 1 "$ranks"
done
sleep 10 # what making them has left to be done
for ((k = 1; k <= saves; ++k)); do
  step=$((100 * k)) spread=$((k % 2 ? 0 : 20))
  echo "$step $(($(date +%s) + 20)) $spread" >"$home/payloads/$k/at.new"
  mv "$home/payloads/$k/at.new" "$home/payloads/$k/at"
  soon 240 decided "$step" || { show_record $run; exit 1; }
  soon 120 all_heard "$step" || echo "# some ranks have not said that they heard of step $step"
  echo "save $k of $saves: step $step, votes within $spread s"
done
manifest_bytes=$(stat -c %s "$home/$run/checkpoints"/step-*/manifest.json 2>/dev/null | sort -n | tail -n 1)
cat "$home/$run"/logs/*.log >"$dir/agents.log"
cat "$home/$run"/logs/attempt-*/rank-*.log | jq -cR 'fromjson? // empty' >"$dir/heard.jsonl"
grep -hE 'all votes came in|longest turn' "$dir/agents.log" | sed 's/^/# /'
events $run | jq -cr 'select(.event == "node_lost" or .event == "attempt_ended" or .event == "checkpoint_dropped")' | cut -c1-250 | sed 's/^/# /'
mini exec scancel "$job"
soon 60 job_gone "$job" || true

turns=$(grep -oP 'longest turn .* took \K[0-9.]+' "$dir/agents.log" | jq -cs .)
after=$(grep -oP 'decided \K[0-9.]+(?= s after the last)' "$dir/agents.log" | jq -cs .)
jq -rn --argjson nodes "$nodes" --argjson ranks "$ranks" --argjson manifest "${manifest_bytes:-0}" --argjson turns "$turns" --argjson after "$after" \
  --slurpfile heard "$dir/heard.jsonl" --slurpfile events <(events $run) '
  def round3: . * 1000 | round / 1000;
  [$heard | group_by(.step)[] | {step: .[0].step, durable: (all(.durable)), heard_by: length, votes_within_s: ((map(.voted) | max - min) | round3),
      last_vote_to_record_s: ((.[0].step as $s | [$events[] | select((.event == "checkpoint_durable" or .event == "checkpoint_dropped") and .step == $s)][0].unix) - (map(.voted) | max) | round3),
      last_vote_to_last_rank_s: ((map(.heard) | max) - (map(.voted) | max) | round3)}] as $saves
  | "RESULT " + ({nodes: $nodes, ranks: $ranks, vote_bytes: ([$heard[].bytes] | {least: min, most: max}), bytes_a_save: ($heard | group_by(.step)[0] | map(.bytes) | add),
      manifest_bytes: $manifest, saves: $saves, leader_decided_after_its_last_vote_s: $after, leader_longest_turn_ms: $turns,
      nodes_lost: ([$events[] | select(.event == "node_lost")] | length), attempts_ended: ([$events[] | select(.event == "attempt_ended" and .cause != "drained")] | length)} | tostring)'
