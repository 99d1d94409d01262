#!/usr/bin/env bash
# Is slow hardware found, and named? RUNS jobs on a minipod of four nodes, each undisturbed for 50 steps or more, which is one
# labelled period, and then with an injection, which is another. The seed chooses the order of the kinds, the node, how
# strong it is, and when it begins:
#   compute   the rank of a node is given a part of the processor time that it used before (control group `cpu`, version 1)
#   network   what a node sends and what it is sent goes through a token bucket (tc tbf)
#   link      the rate that a node's RDMA port shows is halved or quartered, in a stand-in for /sys
# An injection counts as found when the first event `straggler` after it names the node and the kind, within 50 steps.
# Whatever else is named, and anything in an undisturbed period, is a false alarm. As root:
#   scripts/proof/slow_hardware.sh BUILD [SEED=1] [RUNS=20]
# Ends with one line RESULT {json}: precision, recall, F1, steps until named; exit code 0 only if F1 is 0.95 or more and every
# node that was found was named within 50 steps. HOLDFAST_PROOF_KINDS: which kinds, all of the three. RUNS_LOG: a file to
# which a line of JSON goes for each period; slow_hardware.sh --sum FILE... counts those of several batches together.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"

count() { # FILE...: of lines of JSON, one for each period
  jq -s '
    def ratio($a; $b): if $b == 0 then null else $a / $b end;
    map(select(.found)) as $found
    | ($found | length) as $tp
    | (map(.false_alarms) | add // 0) as $fp
    | (map(select(.injected and (.found | not))) | length) as $fn
    | ($found | map(.steps) | sort) as $steps
    | {proof: "slow_hardware", seeds: (map(.seed) | unique), injected: (map(select(.injected)) | length),
       undisturbed: (map(select(.injected | not)) | length), jobs: (map(.run) | unique | length), found: $tp, false_alarms: $fp, missed: $fn,
       precision: ratio($tp; $tp + $fp), recall: ratio($tp; $tp + $fn), f1: ratio(2 * $tp; 2 * $tp + $fp + $fn),
       steps_until_named: {median: $steps[$steps | length / 2 | floor], longest: $steps[-1]},
       by_kind: (map(select(.injected)) | group_by(.kind) | map({(.[0].kind): {runs: length, found: map(select(.found)) | length,
         longest: map(.steps // 0) | max}}) | add)}' "$@"
}
finish() { # FILE...
  local result
  result=$(count "$@")
  printf 'RESULT %s\n' "$(jq -c . <<<"$result")"
  jq -e '.f1 >= 0.95 and (.steps_until_named.longest // 0) <= 50' <<<"$result" >/dev/null
}
if [[ ${1-} == --sum ]]; then
  finish "${@:2}"
  exit
fi

(($# >= 1)) || die "which build? scripts/proof/slow_hardware.sh BUILD [SEED] [RUNS]"
build=$(realpath "$1")
seed=${2:-1} runs=${3:-20}
read -r -a kinds <<<"${HOLDFAST_PROOF_KINDS:-compute network link}"
export HOLDFAST_TEST_FAST=1
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-slow.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"; [[ ! -d ${throttled-} ]] || rmdir "$throttled"' EXIT
trap 'exit 130' INT TERM HUP

log=${RUNS_LOG:-$dir/runs.jsonl}
nodes=4 longest=50 # steps until a node must be named
mini up --nodes $nodes
install_programs "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
make_tokens

# A minimal generator, so that a seed means the same everywhere: sets `drawn` to 0 ... $1 - 1.
state=$((seed * 7919 + 17))
draw() {
  state=$(((state * 1103515245 + 12345) % 2147483648))
  drawn=$(((state >> 8) % $1))
}

# The injections. Each is begun with the node and how strong it is, and ended with the node.
# The rank of a node gets a part of the processor time that it has used undisturbed: on a machine with fewer cores than ranks
# a limit above that would slow nobody.
cpu_s() { awk -v hz="$(getconf CLK_TCK)" '{print ($14 + $15) / hz}' "/proc/$1/stat"; }
throttled=/sys/fs/cgroup/cpu/hf-slow-$$ period_us=20000
begin_compute() { # NODE FACTOR
  local pid before
  pid=$(rank_process '^[^ ]*holdfast-train' "HOLDFAST_NODE=$1" 'HOLDFAST_RANK=[0-9]+')
  before=$(cpu_s "$pid")
  sleep 1
  mkdir -p "$throttled"
  echo $period_us >"$throttled/cpu.cfs_period_us"
  jq -n "$period_us * ($(cpu_s "$pid") - $before) / $2 | floor | [., 1000] | max" >"$throttled/cpu.cfs_quota_us"
  echo "$pid" >"$throttled/cgroup.procs"
}
end_compute() {
  local pid
  for pid in $(<"$throttled/cgroup.procs"); do echo "$pid" >"${throttled%/*}/cgroup.procs"; done
  rmdir "$throttled"
}
begin_network() { # NODE MBIT
  mini exec --root --node "$1" tc qdisc add dev eth0 root tbf rate "${2}mbit" burst 16kb latency 200ms
  mini exec --root tc qdisc add dev "v${1#dgx}" root tbf rate "${2}mbit" burst 16kb latency 200ms
}
end_network() {
  mini exec --root --node "$1" tc qdisc del dev eth0 root
  mini exec --root tc qdisc del dev "v${1#dgx}" root
}
port_of_node() { printf '%s/sys/%s/class/infiniband/mlx5_0/ports/1' "$home" "$1"; }
begin_link() { echo "$2 Gb/sec" >"$(port_of_node "$1")/rate"; } # NODE GBIT
end_link() { begin_link "$1" 400; }

stragglers() { events "$1" | jq -c 'select(.event == "straggler")'; }
named() { (($(stragglers "$1" | wc -l) > $(wc -l <"$dir/seen.jsonl"))); }
named_or_past() { named "$1" || step_reached "$1" "$2"; }

for ((n = 1; n <= nodes; ++n)); do
  port=$(port_of_node "dgx00$n")
  mkdir -p "$port"
  echo "4: ACTIVE" >"$port/state"
  echo "400 Gb/sec" >"$port/rate"
done

# Each kind as often as the others.
plan=()
for ((i = 0; i < runs; ++i)); do plan+=("${kinds[i % ${#kinds[@]}]}"); done
for ((i = runs - 1; i > 0; --i)); do
  draw $((i + 1))
  swap=${plan[i]} plan[i]=${plan[drawn]} plan[drawn]=$swap
done

# write_down RUN KIND NODE STRENGTH BEGUN: a period has ended; $dir/seen.jsonl has the events that are older.
write_down() {
  stragglers "$1" >"$dir/said.jsonl"
  jq -cn --argjson seed "$seed" --arg run "$1" --arg kind "$2" --arg node "$3" --arg strength "$4" --argjson begun "$5" \
    --argjson step "$(last_step "$1")" --slurpfile seen "$dir/seen.jsonl" --slurpfile said "$dir/said.jsonl" '
      $said[$seen | length:] as $new
      | ($new | map({what, node})) as $all
      | ($kind != "none" and $all[0] == {what: $kind, node: $node}) as $found
      | {seed: $seed, run: $run, kind: $kind, injected: ($kind != "none"), node: $node, strength: $strength, begun: $begun,
         found: $found, steps: (if $found then $step - $begun else null end),
         false_alarms: ($all | map(select($kind == "none" or . != {what: $kind, node: $node})) | unique | length),
         said: ($new | map(.evidence))}' >>"$log"
  mv "$dir/said.jsonl" "$dir/seen.jsonl"
  tail -n 1 "$log" | jq -r '"         \(.run)  from step \(.begun)  \(.kind) \(if .injected then "\(.node) \(.strength)" else "" end): \(
    if .found then "named after \(.steps) steps" elif .injected then "MISSED" else "nothing" end)\(
    if .false_alarms > 0 then ", \(.false_alarms) FALSE: \(.said)" else "" end)"'
}

one_run() { # NUMBER KIND
  local run=seed-$seed-run-$1 kind=$2 node strength onset job
  local -a strengths
  draw $nodes
  node=dgx00$((drawn + 1))
  case $kind in
    compute) strengths=(2.5 3 4) ;;
    network) strengths=(15 25 40) ;;
    link) strengths=(200 200 100) ;;
    *) die "which kind is $kind? compute, network or link" ;;
  esac
  draw 3
  strength=${strengths[drawn]}
  draw 10
  onset=$((10 + longest + drawn))
  job=$(submit_env=HOLDFAST_SYS=/shared/home/sys/%N submit_held "$run" --set train.steps=1000000 --set checkpoint.every=0 \
    --set cluster.nodes=$nodes --set cluster.spares=0 --set cluster.ranks_per_node=1 --set train.lanes=4 \
    --set shard.strategy=full_shard --set train.sequence=96 2>"$dir/submit.log") || die "$(<"$dir/submit.log")"
  : >"$dir/seen.jsonl"
  soon 120 step_reached "$run" "$onset" || { show_record "$run"; die "$run does not train"; }
  write_down "$run" none "" "" $((onset - longest))
  onset=$(last_step "$run")
  "begin_$kind" "$node" "$strength"
  soon 120 named_or_past "$run" $((onset + longest)) || show_record "$run"
  "end_$kind" "$node"
  write_down "$run" "$kind" "$node" "$strength" "$onset"
  mini exec scancel "$job"
  soon 60 job_gone "$job" && soon 60 all_idle
}

step "$runs runs of seed $seed: ${kinds[*]}"
for ((i = 0; i < runs; ++i)); do one_run "$i" "${plan[i]}"; done
finish "$log"
