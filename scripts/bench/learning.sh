#!/usr/bin/env bash
# Whether bf16 learns as well as fp32, and fp8 as well as bf16: trains configs/models/tiny.toml on TEXT, with all settings but
# [precision] alike, and compares the loss on the last tenth of the text, which neither training nor the tokenizer has seen.
# Some 8 minutes.
#   scripts/bench/learning.sh BUILD_DIR TEXT [STEPS=600]
# Ends with one line RESULT {json}; exit code 0 only if each loss is within 0.5 % of the one before and all have learned.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 2)) || die "which build, which text? scripts/bench/learning.sh build/release TEXT"
train=$(realpath "$1/src/train/holdfast-train") tool=$(realpath "$1/src/tools/cli/holdfast-tool") text=$(realpath "$2")
steps=${3:-600}
dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-learning.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

step "text: $(basename "$text")"
"$tool" data prepare --input "$text" --output "$dir/tokens.bin" --train-vocabulary 2048 --val-fraction 0.1 2>"$dir/log" |
  while read -r line; do say "${line//"$dir/"/}"; done || die "data prepare failed: $(tail -n 3 "$dir/log")"
cat >"$dir/job.toml" <<END
[model]
file = "$source/configs/models/tiny.toml"
[data]
tokens = "$dir/tokens.bin"
validation = "$dir/tokens.val.bin"
[train]
sequence = 256
global_batch = 16
micro_batch = 4
steps = $steps
[eval]
every = $((steps / 6))
samples = 100000      # more than there are: all of them
[optim]
lr = 2e-3
min_lr = 2e-4
warmup_steps = $((steps / 10))
[checkpoint]
every = 0
END

learn() {
  local name=$1 sets=()
  shift
  for set in "$@"; do sets+=(--set "$set"); done
  step "$name"
  timeout --foreground 3600 "$train" "$dir/job.toml" --run-dir "$dir/$name" "${sets[@]}" >"$dir/log" 2>&1 ||
    { tail -n 15 "$dir/log" >&2; die "holdfast-train failed (see above)"; }
  jq -r 'select(.held_out_loss) | "step \(.step)  loss \(.loss * 1e4 | round / 1e4)  held out \(.held_out_loss * 1e4 | round / 1e4)"' \
    "$dir/$name/metrics.jsonl" | while read -r line; do say "$line"; done
}
learn fp32 precision.parameters=fp32
learn bf16 precision.parameters=bf16
learn fp8 precision.parameters=bf16 precision.products=fp8

jq -rn --slurpfile fp32 "$dir/fp32/metrics.jsonl" --slurpfile bf16 "$dir/bf16/metrics.jsonl" --slurpfile fp8 "$dir/fp8/metrics.jsonl" \
  --argjson steps "$steps" '
  def held_out: map(select(.held_out_loss).held_out_loss) | last;
  def speed: map(.tokens_per_s) | sort | .[length / 2 | floor] | round;
  def facts: {held_out_loss: held_out, best_held_out_loss: (map(.held_out_loss // empty) | min), train_loss: last.loss, tokens_per_s: speed};
  def percent(a; b): 100 * ((a | held_out) / (b | held_out) - 1);
  {steps: $steps, tokens: ($fp32 | last.tokens), fp32: ($fp32 | facts), bf16: ($bf16 | facts), fp8: ($fp8 | facts),
   difference_percent: percent($bf16; $fp32), fp8_difference_percent: percent($fp8; $bf16)} as $r
  | "", "held-out loss after \($steps) steps: fp32 \($r.fp32.held_out_loss), bf16 \($r.bf16.held_out_loss) (\($r.difference_percent * 1e3 | round / 1e3) %), fp8 \($r.fp8.held_out_loss) (\($r.fp8_difference_percent * 1e3 | round / 1e3) %)",
    "RESULT \($r | tojson)",
    if $r.fp32.held_out_loss >= 0.8 * (2048 | log) then error("nothing was learned")
    elif ($r.difference_percent | fabs) > 0.5 then error("bf16 is not within 0.5 % of fp32")
    elif ($r.fp8_difference_percent | fabs) > 0.5 then error("fp8 is not within 0.5 % of bf16")
    else empty end'
