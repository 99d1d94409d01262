#!/usr/bin/env bash
# How long a rank with much state takes to restart from its own buffers in node memory: one node, one rank, a model whose
# parameters and optimizer state take GIGABYTES (12 bytes a parameter), killed ROUNDS times. Times are those of recovery.jq.
# As root: scripts/bench/rank_restart.sh HOLDFAST TRAIN TOOL [GIGABYTES=4] [ROUNDS=5]
# It needs about four times GIGABYTES of memory. Ends with one line RESULT {json}: p50 and p99, seconds.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=("$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")")
gigabytes=${4:-4}
rounds=${5:-5}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod, dir and home are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
run=restart
broken=$dir/broken.jsonl # what was broken, with its run

mini up --nodes 1
install_programs "${programs[@]}"
make_tokens

# A layer of this width has 12,847,104 parameters.
copy_job
sed 's/^gpu_memory_bytes.*/gpu_memory_bytes = 34359738368/' "$source/configs/clusters/minipod.toml" >"$home/cluster.toml"
cat >"$home/big.toml" <<END
[model]
name = "rank-restart"
vocabulary = 512
width = 1024
layers = $((gigabytes * 1000000000 / 12 / 12847104))
heads = 8
kv_heads = 8
ffn = 2816
max_sequence = 256
tied_embeddings = true
END
chown 61000 "$home/"{cluster,big}.toml
job=$(submit "$run" --set cluster.file=/shared/home/cluster.toml --set cluster.nodes=1 --set cluster.spares=0 --set cluster.ranks_per_node=1 \
  --set model.file=/shared/home/big.toml --set train.steps=1000000 --set train.sequence=16 --set train.global_batch=1 --set train.lanes=1 \
  --set checkpoint.every=1000000 --set supervise.max_restarts=1000000)
soon 300 training "$run" 1
now=$(last_step "$run")
soon 300 step_reached "$run" $((now + 3))
for ((k = 1; k <= rounds; ++k)); do
  # shellcheck disable=SC2016 # for the node's shell
  when=$(mini exec --root --node dgx001 --chdir / bash -c 'date +%s.%6N; kill -KILL $(pgrep -x holdfast-train)')
  jq -cn --arg run "$run" --argjson unix "$when" '{run: $run, fault: "kill-rank", node: "dgx001", unix: $unix}' >>"$broken"
  soon 300 training "$run" $((k + 1))
  now=$(last_step "$run")
  soon 300 step_reached "$run" $((now + 3))
  echo "killed $k of $rounds times, at step $now"
done
mini exec scancel "$job"

jq -rn --slurpfile faults "$broken" --slurpfile events <(events "$run" | jq -c --arg run "$run" '. + {run: $run}') \
  --slurpfile metrics <(jq -c --arg run "$run" '. + {run: $run}' "$home/$run/metrics.jsonl") -f "$source/scripts/bench/recovery.jq"
