#!/usr/bin/env bash
# What being supervised costs a healthy run: the same job on 2 nodes of a minipod, once with agents, heartbeats, mpirun of
# our own and the default checks ([verify]), once as a bare `srun holdfast-train`, in turns. No checkpoints, no local level.
# The nodes share this machine's cores, so agents take their time from the ranks, as they would not with a core of their
# own; what processes other than ranks used is told as well. As root, on a machine that does nothing else.
#   scripts/bench/overhead.sh HOLDFAST TRAIN TOOL [TURNS=5] [STEPS=205]
# Ends with one line RESULT {json}: medians of the turns' median and mean step (seconds; the checks are in the mean alone),
# overhead of supervision over bare by each, and how much of one core a node's agent (with what it starts ranks through) used: the most that it can cost a rank.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
turns=${4:-5} steps=${5:-205}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod and dir are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 2
install_programs "${programs[@]}"
make_tokens
# One rank a node, steps of some tenths of a second.
settings=(--set cluster.spares=0 --set cluster.ranks_per_node=1 --set "train.steps=$steps" --set train.global_batch=16 --set train.sequence=256
  --set train.micro_batch=2 --set checkpoint.every=0 --set checkpoint.local=none --set checkpoint.partner=none)

# By the clock between two lines, as checks come between steps.
mean_step() {
  jq -s 'def at: (.time[0:19] + "Z" | fromdateiso8601) + ("0" + (.time[19:-1]) | tonumber);
    .[5:] | ((last | at) - (first | at)) / (length - 1)' "$home/$1/metrics.jsonl"
}
median_step() { # RUN: of all but the first five, which find cold caches
  jq -s '.[5:] | map(.step_s) | sort | .[length / 2 | floor]' "$home/$1/metrics.jsonl"
}
# The time, and CPU seconds of both nodes' agents and ranks so far: "TIME AGENTS RANKS".
cpu_seconds() {
  local node
  for node in dgx001 dgx002; do
    # shellcheck disable=SC2016 # for the node's shell
    mini exec --root --node "$node" --chdir / bash -c '
      for p in $(pgrep -x "holdfast|holdfast-train"); do
        read -r name <"/proc/$p/comm"; stat=$(<"/proc/$p/stat"); set -- ${stat##*) }; echo "$name $((${12} + ${13}))"
      done'
  done 2>/dev/null | awk -v now="$EPOCHREALTIME" -v hz="$(getconf CLK_TCK)" '{ t[$1] += $2 } END { print now, t["holdfast"] / hz, t["holdfast-train"] / hz }'
}
supervised() {
  run=supervised_$1
  soon 120 all_idle
  job=$(submit "$run" "${settings[@]}" --set 'rank.environment=["OMP_NUM_THREADS=1"]')
  soon 300 step_reached "$run" 6
  local before after
  before=$(cpu_seconds)
  sleep 15 # not looking at its steps: that takes the ranks' time
  after=$(cpu_seconds)
  ! over "$run" || { echo "$steps steps are too few: they were done before their processor time could be read"; exit 1; }
  cpu+=("$before $after")
  soon 900 over "$run"
  soon 120 job_gone "$job"
}
bare() {
  run=bare_$1
  soon 120 all_idle
  cp "$source/tests/fault/"{job,model}.toml "$home/"
  timeout 900 "$pod" exec --chdir /shared/home env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive srun --mpi=pmix -N2 --ntasks-per-node=1 \
    holdfast-train job.toml --set data.tokens=/shared/home/tokens.bin --set "run.dir=/shared/home/$run" "${settings[@]}" \
    --set verify.replicas_every=0 --set verify.micro_batch_every=0 >/dev/null 2>&1
}

cpu=() with=() without=() mean_with=() mean_without=()
for ((turn = 1; turn <= turns; ++turn)); do
  # Who goes first changes, as a machine may warm up or slow down.
  if ((turn % 2)); then order=(supervised bare); else order=(bare supervised); fi
  for kind in "${order[@]}"; do "$kind" "$turn"; done
  with+=("$(median_step "supervised_$turn")")
  without+=("$(median_step "bare_$turn")")
  mean_with+=("$(mean_step "supervised_$turn")")
  mean_without+=("$(mean_step "bare_$turn")")
  echo "turn $turn of $turns: supervised ${with[-1]} s, bare ${without[-1]} s; time, CPU seconds of agents and of ranks, before and after: ${cpu[-1]}"
  for kind in supervised bare; do
    [[ $(result "${kind}_$turn" .state_digest) == "$(result supervised_1 .state_digest)" ]] || { echo "$kind $turn ended in other bits"; exit 1; }
  done
done

jq -rn --argjson with "[$(IFS=,; echo "${with[*]}")]" --argjson without "[$(IFS=,; echo "${without[*]}")]" --argjson mean_with "[$(IFS=,; echo "${mean_with[*]}")]" \
  --argjson mean_without "[$(IFS=,; echo "${mean_without[*]}")]" --arg cpu "$(printf '%s\n' "${cpu[@]}")" '
  def median: sort | .[length / 2 | floor];
  ($cpu | split("\n") | map(select(. != "") | split(" ") | map(tonumber) | {wall: (.[3] - .[0]), agents: (.[4] - .[1]), ranks: (.[5] - .[2])})) as $cpu
  | "RESULT " + ({turns: ($with | length), supervised_step_s: ($with | median), bare_step_s: ($without | median),
      overhead: (($with | median) / ($without | median) - 1), overhead_by_mean: (($mean_with | median) / ($mean_without | median) - 1), overhead_of_turns: ([range($with | length) as $i | $with[$i] / $without[$i] - 1] | sort),
      agent_cores_per_node: (($cpu | map(.agents) | add) / ($cpu | map(.wall) | add) / 2)} | tostring)'
