#!/usr/bin/env bash
# Tokens per second of holdfast-train beside current PyTorch, on this machine's two cores: a Llama-shaped model of 124
# million parameters (configs/models/llama-124m.toml), sequences of 1024 tokens, bf16, the same batch, the same threads.
#   1 rank, 2 threads          against one PyTorch process, the fastest of: fp32 weights under autocast, all in bf16; each
#                              eager and compiled
#   2 ranks, 1 thread each     against FSDP2 over gloo, the faster of eager and compiled
# Each PyTorch variant runs once, with malloc told to keep its memory (a third faster here); then the fastest and Holdfast
# take turns, ROUNDS times, and medians are compared. Some 20 minutes; on a busy machine look at the column "others".
#   scripts/bench/train_cpu.sh BUILD_DIR [ROUNDS=5] [GLOBAL_BATCH=4]     sequences per optimizer step, over all ranks
#   HOLDFAST_TORCH_ENV=DIR     keeps PyTorch's environment in DIR and uses it again
# Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/torch_env.sh
source "$source/scripts/torch_env.sh"
(($# >= 1)) || die "which build? scripts/bench/train_cpu.sh build/release"
train=$(realpath "$1/src/train/holdfast-train") tool=$(realpath "$1/src/tools/cli/holdfast-tool")
rounds=${2:-5} global_batch=${3:-4}
warmup=2 measured=2 # steps of a run

dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-speed.XXXXXX") torch_throw_away=''
trap 'rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TORCHINDUCTOR_CACHE_DIR=${HOLDFAST_TORCH_ENV:-$dir}/inductor

cat /usr/share/common-licenses/{GPL-3,GPL-2,LGPL-2.1,Apache-2.0} >"$dir/text.txt"
"$tool" data prepare --input "$dir/text.txt" --output "$dir/tokens.bin" --train-vocabulary 512 >/dev/null 2>&1 ||
  die "'$tool data prepare' failed"
cat >"$dir/job.toml" <<END
[model]
file = "$source/configs/models/llama-124m.toml"
[data]
tokens = "$dir/tokens.bin"
[train]
sequence = 1024
global_batch = $global_batch
micro_batch = 1
steps = $((warmup + measured))
[precision]
parameters = "bf16"
[shard]
strategy = "full_shard"
[optim]
warmup_steps = 1
[checkpoint]
every = 0
END

# Clock ticks: all processors' busy (or stolen) ones, and those of this script's children so far.
busy_ticks() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8 + $9}' /proc/stat; }
own_ticks() { awk '{print $16 + $17}' "/proc/$$/stat"; }

# timed CONTENDER COMMAND...: adds {contender, tokens_per_s: [...], others} of a run to runs.jsonl; `others` is how many
# processors other programs kept busy meanwhile. The command leaves one number per step in $dir/speeds.
timed() {
  local contender=$1 busy own begin
  shift
  rm -f "$dir/speeds"
  busy=$(busy_ticks) own=$(own_ticks) begin=$EPOCHREALTIME
  if ! "$@" >"$dir/log" 2>&1 || [[ ! -s $dir/speeds ]]; then
    tail -n 15 "$dir/log" >&2
    return 1
  fi
  jq -sc --arg contender "$contender" --argjson ticks $(($(busy_ticks) - busy - $(own_ticks) + own)) \
    --argjson s "$(jq -n "$EPOCHREALTIME - $begin")" --argjson hz "$(getconf CLK_TCK)" \
    '{contender: $contender, tokens_per_s: ., others: ([$ticks / $hz / $s, 0] | max)}' "$dir/speeds" >>"$dir/runs.jsonl"
}
speed_of() { jq -sr --arg c "$1" 'map(select(.contender == $c).tokens_per_s[]) | sort | .[length / 2 | floor] // 0 | round' "$dir/runs.jsonl"; }

# holdfast RANKS
holdfast() {
  local start=()
  (($1 == 1)) || start=(mpirun -n "$1" --oversubscribe)
  rm -rf "$dir/run"
  OMP_NUM_THREADS=$((2 / $1)) timeout --foreground 900 "${start[@]}" "$train" "$dir/job.toml" --run-dir "$dir/run" || return
  jq "select(.step > $warmup).tokens_per_s" "$dir/run/metrics.jsonl" >"$dir/speeds"
}

# torch RANKS MODE [--compile]
torch() {
  local rank pids=() status=0
  rm -f "$dir"/{rendezvous,torch.*}
  export GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000:glibc.malloc.top_pad=268435456
  for ((rank = 0; rank < $1; ++rank)); do
    OMP_NUM_THREADS=$((2 / $1)) RANK=$rank WORLD_SIZE=$1 RENDEZVOUS=$dir/rendezvous GLOO_SOCKET_IFNAME=lo timeout --foreground 900 "$torch_python" \
      "$source/scripts/bench/train_cpu_torch.py" --tokens "$dir/tokens.bin" --global-batch "$global_batch" --warmup $warmup --steps $measured \
      --mode "${@:2}" >"$dir/torch.$rank" &
    pids+=($!)
  done
  unset GLIBC_TUNABLES
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  ((status == 0)) && grep '^{' "$dir/torch.0" | tail -n 1 | jq '.tokens_per_s[]' >"$dir/speeds"
}

step "PyTorch's variants, one run each ($global_batch sequences of 1024 tokens per step)"
declare -A best=([1]='' [2]='')
for variant in '1 autocast' '1 autocast --compile' '1 pure' '1 pure --compile' '2 fsdp' '2 fsdp --compile'; do
  ranks=${variant%% *}
  read -ra words <<<"$variant"
  if timed "$variant" torch "${words[@]}"; then
    say "$(printf '%d rank(s)  %-20s %6d tokens/s' "$ranks" "${variant#* }" "$(speed_of "$variant")")"
    [[ -n ${best[$ranks]} ]] && (("$(speed_of "${best[$ranks]}")" >= "$(speed_of "$variant")")) || best[$ranks]=$variant
  else
    say "$(printf '%d rank(s)  %-20s failed (see above)' "$ranks" "${variant#* }")"
  fi
done
[[ -n ${best[1]} && -n ${best[2]} ]] || die "PyTorch did not run (see above)"

for ((round = 1; round <= rounds; ++round)); do
  line=''
  for ranks in 1 2; do
    read -ra words <<<"${best[$ranks]}"
    timed "holdfast $ranks" holdfast "$ranks" || die "holdfast-train failed on $ranks rank(s) (see above)"
    timed "torch $ranks" torch "${words[@]}" || die "PyTorch failed (see above)"
    line+=$(printf '   %d rank(s): holdfast %5d  torch %5d' "$ranks" "$(speed_of "holdfast $ranks")" "$(speed_of "torch $ranks")")
  done
  step "round $round of $rounds, medians so far:$line"
done

# 6 per parameter and token, and causal attention: 6 x layers x width x sequence.
jq -rs --arg one "${best[1]#* }" --arg two "${best[2]#* }" --argjson batch "$global_batch" \
  --arg torch "$("$torch_python" -c 'import torch; print(torch.__version__)')" \
  --arg cpu "$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)" --argjson flop $((6 * 123587328 + 6 * 12 * 768 * 1024)) '
  def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def digits($n): pow(10; $n) as $p | . * $p | round / $p;
  def row($name): map(select(.contender == $name)) | {tokens_per_s: ([.[].tokens_per_s[]] | median | digits(1)), min: ([.[].tokens_per_s[]] | min | digits(1)),
    max: ([.[].tokens_per_s[]] | max | digits(1)), gflop_per_s: ([.[].tokens_per_s[]] | median * $flop / 1e9 | digits(0)), others: (map(.others) | median | digits(2))};
  def ratio($a; $b): [[.[] | select(.contender == $a).tokens_per_s | median], [.[] | select(.contender == $b).tokens_per_s | median]] | transpose | map(.[0] / .[1]) | median | digits(2);
  def pad($n): tostring | . + " " * ([$n - length, 1] | max);
  {cpu: $cpu, torch: $torch, global_batch: $batch,
   holdfast_1: row("holdfast 1"), torch_1: (row("torch 1") + {variant: $one}), ratio_1: ratio("holdfast 1"; "torch 1"),
   holdfast_2: row("holdfast 2"), torch_2: (row("torch 2") + {variant: $two}), ratio_2: ratio("holdfast 2"; "torch 2"),
   torch_variants: [.[] | select(.contender | test("^[12] ")) | {variant: .contender, tokens_per_s: (.tokens_per_s | median | digits(1))}]} as $r
  | def line($name; $x): ($name | pad(34)) + ($x.tokens_per_s | pad(10)) + ("\($x.min) to \($x.max)" | pad(18)) + ($x.gflop_per_s | pad(10)) + ($x.others | tostring);
  "", ("" | pad(34)) + ("tokens/s" | pad(10)) + ("range" | pad(18)) + ("GFLOP/s" | pad(10)) + "others (processors)",
  line("holdfast, 1 rank x 2 threads"; $r.holdfast_1), line("torch \($one)"; $r.torch_1), line("holdfast, 2 ranks x 1 thread"; $r.holdfast_2),
  line("torch \($two), 2 x 1"; $r.torch_2), "", "holdfast / torch, median of rounds: \($r.ratio_1) on 1 rank, \($r.ratio_2) on 2", "RESULT \($r | tojson)"' "$dir/runs.jsonl"
