#!/usr/bin/env bash
# How fast the collectives are. Inside a node (2 and 4 ranks on this machine; 1, 16 and 64 MiB): adding gradients in order against
# MPI_Reduce_scatter, gathering against memcpy and MPI_Allgather. Between two nodes of a minipod: messages against a plain
# TCP stream between the same two. Interleaved, medians of ROUNDS. As root.
#   scripts/bench/collectives.sh COLLECTIVES_BENCH [ROUNDS=15]
# Ends with one line RESULT {json}. Each number is a list: from medians, from the best times, from processor times.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=$(realpath "$1")
rounds=${2:-15}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod and dir are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

for ranks in 2 4; do
  mpirun -n $ranks --oversubscribe --bind-to none "$program" node "$rounds" | tee -a "$dir/node.jsonl"
done

mini up --nodes 2
install -D -m 0755 "$program" "$dir/shared/opt/holdfast/bin/collectives_bench"
mini exec env OMPI_MCA_btl=self,vader,tcp srun --mpi=pmix --nodes 2 --ntasks-per-node 1 \
  collectives_bench pair "$rounds" | tee "$dir/pair.jsonl"

jq -cn --slurpfile node "$dir/node.jsonl" --slurpfile pair "$dir/pair.jsonl" '{node: $node, pair: $pair}' | sed 's/^/RESULT /'
