#!/usr/bin/env bash
# What a checkpoint costs on this machine: beside raw memory copies and raw direct reads and writes of the same bytes, and
# beside current PyTorch's torch.distributed.checkpoint on the same tensors in as many processes. Llama-shaped tensors,
# weights : optimizer state 1 : 2; fsync always, and nothing of a file in memory before it is read.
# The two take turns, ROUNDS times; ratios are of one round, and their medians are compared. Some 2 minutes a round; on a
# busy machine look at "load".
#   scripts/bench/checkpoint.sh BUILD_DIR [GIB=2] [ROUNDS=5] [FOLDER]    FOLDER: on the disk to measure, default $TMPDIR
#   HOLDFAST_TORCH_ENV=DIR     keeps PyTorch's environment in DIR and uses it again
# Needs three times GIB of memory and room. Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/torch_env.sh
source "$source/scripts/torch_env.sh"
(($# >= 1)) || die "which build? scripts/bench/checkpoint.sh build/release"
bench=$(realpath "$1/tests/checkpoint/holdfast_checkpoint_bench")
[[ -x $bench ]] || die "there is no $bench. Build the target holdfast_checkpoint_bench?"
gib=${2:-2} rounds=${3:-5} ranks=2

dir=$(mktemp -d "${4:-${TMPDIR:-/tmp}}/hf-checkpoint.XXXXXX") torch_throw_away=''
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env

# torch LAYERS: leaves its line of JSON in $dir/torch.json. Not in a subshell: the trap must know the processes.
torch() {
  local rank status=0
  pids=()
  rm -f "$dir"/{rendezvous,torch.*}
  for ((rank = 0; rank < ranks; ++rank)); do
    OMP_NUM_THREADS=1 RANK=$rank WORLD_SIZE=$ranks RENDEZVOUS=$dir/rendezvous GLOO_SOCKET_IFNAME=lo timeout --foreground 900 "$torch_python" \
      "$source/scripts/bench/checkpoint_torch.py" --folder "$dir" --layers "$1" --turns 2 >"$dir/torch.$rank" 2>"$dir/torch.err.$rank" &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  pids=()
  ((status == 0)) || { tail -n 15 "$dir"/torch.err.* >&2; return "$status"; }
  grep '^{' "$dir/torch.0" | tail -n 1 >"$dir/torch.json"
}

for ((round = 1; round <= rounds; ++round)); do
  ours=$("$bench" "$dir" "$gib" "$ranks") || die "holdfast_checkpoint_bench failed (see above)"
  torch "$(jq .layers <<<"$ours")" || die "PyTorch failed (see above)"
  jq -cn --argjson ours "$ours" --argjson torch "$(cat "$dir/torch.json")" --argjson load "$(cut -d ' ' -f 1 /proc/loadavg)" \
    '{ours: $ours, torch: $torch, load: $load}' >>"$dir/rounds.jsonl"
  step "round $round of $rounds: $(jq -r '"save \(.ours.save_s * 100 | round / 100) s, raw \(.ours.raw_write_s * 100 | round / 100), torch \(.torch.save_s * 100 | round / 100); load \(.ours.load_s * 100 | round / 100), raw \(.ours.raw_read_s * 100 | round / 100), torch \(.torch.load_s * 100 | round / 100); load average \(.load)"' <<<"$(tail -n 1 "$dir/rounds.jsonl")")"
done
plans=$("$bench" "$dir" 0)

jq -rs --argjson plans "$plans" --arg cpu "$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def digits($n): pow(10; $n) as $p | . * $p | round / $p;
  def of(f): map(f) | median;
  {cpu: $cpu, torch: .[0].torch.torch, rounds: length, bytes: .[0].ours.bytes, direct: .[0].ours.direct, load_average: (of(.load) | digits(1)),
   seconds: ([.[].ours | to_entries[] | select(.key | endswith("_s"))] | group_by(.key) | map({(.[0].key): (map(.value) | median | digits(3))}) | add),
   torch_seconds: ([.[].torch | to_entries[] | select(.key | endswith("_s"))] | group_by(.key) | map({(.[0].key): (map(.value) | median | digits(3))}) | add),
   save_over_raw: (of(.ours.raw_write_s / .ours.save_s) | digits(2)), load_over_raw: (of(.ours.raw_read_s / .ours.load_s) | digits(2)),
   reshard_over_load: (of(.ours.load_s / .ours.reshard_s) | digits(2)),
   torch_save: (of(.torch.save_s / .ours.save_s) | digits(2)), torch_load: (of(.torch.load_s / .ours.load_s) | digits(2)),
   torch_stall_over_memcpy: (of(.torch.stall_s / .ours.memcpy_s) | digits(2)), torch_cached_stall_over_memcpy: (of(.torch.cached_stall_s / .ours.memcpy_s) | digits(2)),
   writer_cpu_s_per_gib: (of(.ours.writer_cpu_s_per_gib) | digits(3)), load_cpu_s_per_gib: (of(.ours.load_cpu_s_per_gib) | digits(3)),
   disk_ratio: (of(.ours.disk_bytes / .ours.bytes) | digits(4)), load_bytes_ratio: (of(.ours.load_bytes_ratio) | digits(4)),
   reshard_bytes_ratio: (of(.ours.reshard_bytes_ratio) | digits(4)), plans: ($plans | map_values(digits(4)))} as $r
  | "", "memcpy  \($r.seconds.memcpy_s) s for a copy of the state, which no save makes; torch async_save returns after \($r.torch_stall_over_memcpy) x as long, \($r.torch_cached_stall_over_memcpy) x with memory that it keeps",
  "save    \($r.seconds.save_s) s, \($r.save_over_raw) x the rate of raw direct writes; torch \($r.torch_save) x slower",
  "load    \($r.seconds.load_s) s, \($r.load_over_raw) x the rate of raw direct reads; torch \($r.torch_load) x slower; into one rank more \($r.reshard_over_load) x the rate, \($r.reshard_bytes_ratio) x the bytes",
  "cpu     \($r.writer_cpu_s_per_gib) s per GiB saved, \($r.load_cpu_s_per_gib) loaded", "RESULT \($r | tojson)"' "$dir/rounds.jsonl"
