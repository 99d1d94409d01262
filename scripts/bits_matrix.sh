#!/usr/bin/env bash
# The promise of the numerics, in full: one state digest for every layout of a run.
#
#   scripts/bits_matrix.sh BUILD_DIR [--all] [--steps N]
#
# Trains a very small model N steps (200) in every strategy, on worlds of 1, 2, 3, 4, 5 and 8 ranks, with every shard group
# that divides the world, in fp32 and bf16, and compares state digests: within one type all must be equal. Groups of 5 are left
# out: they do not divide 24 micro-batches, and the trainer refuses that. Modes of activation checkpointing and prefetch depths
# rotate over the layouts, so that every layout meets every one of both; --all runs their whole cross product. At the end, other
# lanes must give another digest (with 50 steps or more). Prints one line per run that differs, and a summary; exit status 1 when
# anything did.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/common.sh
source "$here/common.sh"

usage() { sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | grep '^#' | sed 's/^# \{0,1\}//'; exit 2; }
all=0 steps=200 build=
while (($#)); do
  case $1 in
    --all) all=1 ;;
    --steps) steps=${2:?}; shift ;;
    -*) usage ;;
    *) build=$1 ;;
  esac
  shift
done
[[ -n $build && -x $build/src/train/holdfast-train && -x $build/tests/train/make_tokens ]] || usage

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

# Tensors that no group divides, and some that are smaller than any group.
cat >"$work/model.toml" <<MODEL
[model]
name = "odd"
vocabulary = 67
width = 20
layers = 3
heads = 5
kv_heads = 1
ffn = 34
max_sequence = 64
qkv_bias = true
MODEL
"$build/tests/train/make_tokens" "$work/tokens.bin" 67 4000
cat >"$work/job.toml" <<JOB
[model]
file = "$work/model.toml"
[data]
tokens = "$work/tokens.bin"
[train]
steps = $steps
sequence = 15
global_batch = 24
micro_batch = 1
lanes = 8
[optim]
lr = 1e-2
warmup_steps = 2
[checkpoint]
every = 0
JOB

runs=0 wrong=0
# digest WORLD SETTING...: of one run
digest() {
  local world=$1 set sets=() start=()
  shift
  for set; do sets+=(--set "$set"); done
  ((world == 1)) || start=(mpirun -n "$world" --oversubscribe --bind-to none)
  rm -rf "$work/run"
  timeout 600 "${start[@]}" "$build/src/train/holdfast-train" "$work/job.toml" --run-dir "$work/run" "${sets[@]}" </dev/null \
    >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; return 0; }
  sed -nE 's/.*"state_digest": "([0-9a-f]{16})".*/\1/p' "$work/run/result.json"
}

# layouts WORLD: "strategy group" lines
layouts() {
  local group
  printf 'no_shard 0\n'
  (($1 % 5 == 0)) || printf '%s 0\n' full_shard shard_grad_op
  for ((group = 1; group <= $1; ++group)); do
    (($1 % group || group % 5 == 0)) || printf '%s '"$group"'\n' hybrid_shard hfsdp
  done
}

modes=(none selective attention full)
for type in fp32 bf16; do
  precision=("precision.parameters=$type" "precision.reduce=$type" "precision.moments=$type")
  expected=$(digest 1 shard.strategy=no_shard "${precision[@]}")
  printf '%s: %s\n' "$type" "$expected"
  turn=0
  for world in 1 2 3 4 5 8; do
    while read -r strategy group; do
      for mode in 0 1 2 3; do
        for depth in 0 1 2 3; do
          ((all || depth == (mode + turn) % 4)) || continue
          got=$(digest "$world" "${precision[@]}" "shard.strategy=$strategy" "shard.group=$group" \
            "train.activation_checkpointing=${modes[mode]}" "shard.prefetch_forward=$depth" "shard.prefetch_backward=$(((depth + mode) % 4))")
          runs=$((runs + 1))
          [[ -n $expected && $got == "$expected" ]] && continue
          wrong=$((wrong + 1))
          printf 'DIFFERS: %s, %d ranks, %s group %s, activation checkpointing %s, prefetch %d: %s\n' "$type" "$world" "$strategy" \
            "$group" "${modes[mode]}" "$depth" "${got:-failed}"
        done
      done
      turn=$((turn + 1))
    done < <(layouts "$world")
  done
  # Gradients of 8-bit products mostly add up without rounding, in whatever order: in bf16 it takes tens of steps to show.
  other=$(digest 1 "${precision[@]}" train.lanes=4)
  [[ -n $other && $other != "$expected" ]] ||
    { wrong=$((wrong + 1)); printf 'EQUAL: %s with other lanes, so equal digests prove nothing\n' "$type"; }
done
printf '%d runs of %d steps, %d wrong\n' "$runs" "$steps" "$wrong"
((wrong == 0))
