#!/usr/bin/env bash
# The longest turn of the leader's loop at a PMIx fence of all ranks, for what they usually publish and for as much as a fence
# may have (5 MiB). Leader and agents share this machine's processors; turns are counted in processor time.
#   scripts/bench/pmix_fence.sh FENCE_BENCH [NODES=127] [RANKS_PER_NODE=8] [BYTES_OF_A_RANK=2048]
# Ends with one line RESULT {json}.
set -euo pipefail
program=$(realpath "$1") nodes=${2:-127} ranks_per_node=${3:-8} bytes=${4:-2048}
most=$((5 * 1024 * 1024 / (nodes * ranks_per_node)))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for each in "$bytes" "$most"; do
  timeout 300 "$program" "$folder/$each" "$nodes" "$ranks_per_node" "$each" | tee -a "$folder/results"
done
jq -sr '"RESULT " + ({usual: .[0], largest: .[1]} | tostring)' "$folder/results"
