#!/usr/bin/env bash
# How fast state goes from one node to another when a replaced rank pulls it: PeerExchange between two nodes of a minipod
# against a plain TCP stream between the same two (64 MiB to 1 GiB), interleaved, medians of ROUNDS. As root.
#   scripts/bench/state_pull.sh STATE_PULL_BENCH [ROUNDS=9]
# Ends with one line RESULT {json}; exchange_over_tcp is the number that counts.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=$(realpath "$1")
rounds=${2:-9}
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-bench.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
# shellcheck disable=SC2154 # pod and dir are of pod.sh
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 2
install -D -m 0755 "$program" "$dir/shared/opt/holdfast/bin/state_pull_bench"
timeout 600 "$pod" exec env OMPI_MCA_btl=self,vader,tcp srun --mpi=pmix --nodes 2 --ntasks-per-node 1 \
  state_pull_bench eth0 "$rounds" | tee "$dir/pull.jsonl"

jq -cn --slurpfile pull "$dir/pull.jsonl" '{pull: $pull}' | sed 's/^/RESULT /'
