#!/usr/bin/env bash
# Whether fine-tuning learns: a small model is trained on plain sentences, then fine-tuned on conversations about the same
# things, all of it and with low-rank adapters, with loss on the answers alone. Text and conversations are made up here;
# the way is a user's: `data prepare` trains the tokenizer, renders the chat template and keeps a tenth of the
# conversations apart; [model] weights begins with the first run; `eval` says what the held-out loss was before, and must
# say of the runs what they said themselves, bit for bit. Some 1 minute.
#   scripts/proof/finetune.sh BUILD [STEPS=150]      BUILD: a build tree with holdfast-tool and holdfast-train
# Ends with one line RESULT {json}; exit code 0 only if training and held-out loss fall to a third, with adapters to a half.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 1)) || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
train=$(realpath "$1/src/train/holdfast-train") tool=$(realpath "$1/src/tools/cli/holdfast-tool") steps=${2:-150}
dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-finetune.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$dir"

checked() { "$@" >log 2>&1 || { tail -n 15 log >&2; die "failed: $(basename "$1") ${*:2:2}"; }; }
step "text and conversations"
python3 "$source/scripts/proof/finetune_data.py" "$dir"
checked "$tool" data prepare --input text.txt --output text.bin --train-vocabulary 512
checked "$tool" data prepare --input chat.jsonl --format chat --chat chat --tokenizer text.model --output chat.bin \
  --val-fraction 0.1 --pack 128
say "$(tail -n 3 log | head -n 2 | paste -sd ' ')"
cat >model.toml <<'END_OF_MODEL'
[model]
name = "finetune"
vocabulary = 512
width = 96
layers = 3
heads = 4
kv_heads = 2
ffn = 256
max_sequence = 128
END_OF_MODEL
cat >job.toml <<END_OF_JOB
[model]
file = "model.toml"
[train]
sequence = 128
global_batch = 16
micro_batch = 4
steps = $steps
device = "cpu"
[eval]
every = $steps
samples = 100000      # more than there are: all of them
[optim]
min_lr = 1e-4
warmup_steps = $((steps / 15))
[checkpoint]
every = 0
END_OF_JOB

learn() {
  local name=$1 sets=()
  shift
  for set in "$@"; do sets+=(--set "$set"); done
  step "$name"
  checked timeout --foreground 900 "$train" job.toml --run-dir "$name" "${sets[@]}"
  say "loss $(jq -rs '[first, last] | map(.loss * 1e4 | round / 1e4 | tostring) | join(" -> ")' "$name/metrics.jsonl")"
}
evaluated() { "$tool" eval "$1" --tokens chat.val.bin --sequence 128 --micro-batch 4 --json 2>log | jq .loss; }
tuning=(data.tokens=chat.bin data.validation=chat.val.bin model.weights=base)
learn base data.tokens=text.bin eval.every=0 optim.lr=3e-3
learn full "${tuning[@]}" optim.lr=3e-3
learn adapters "${tuning[@]}" optim.lr=1e-2 lora.rank=8 lora.alpha=16 \
  'lora.targets=["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]'

step "held out"
jq -rn --argjson steps "$steps" --argjson before "$(evaluated base)" \
  --slurpfile full full/metrics.jsonl --argjson full_eval "$(evaluated full)" \
  --slurpfile adapters adapters/metrics.jsonl --argjson adapters_eval "$(evaluated adapters)" '
  # Training losses are of single steps, on some rows each: the last ten count together.
  def tuned($metrics; $eval):
    {train_loss_before: $metrics[0].loss, train_loss: ($metrics[-10:] | map(.loss) | add / length),
     held_out_loss_before: $before, held_out_loss: $metrics[-1].held_out_loss, held_out_loss_by_eval: $eval};
  def fell($share): .train_loss <= $share * .train_loss_before and .held_out_loss <= $share * .held_out_loss_before;
  def short: . * 1e4 | round / 1e4;
  def agrees: .held_out_loss_by_eval == .held_out_loss;
  def shown: "training \(.train_loss_before | short) -> \(.train_loss | short), held out \(.held_out_loss_before | short) -> \(.held_out_loss | short)";
  {steps: $steps, full: tuned($full; $full_eval), adapters: tuned($adapters; $adapters_eval)} as $r
  | "         all of it: \($r.full | shown)", "         adapters:  \($r.adapters | shown)", "RESULT \($r | tojson)",
    if ([$r.full, $r.adapters] | all(agrees) | not) then error("eval and the runs differ")
    elif ($r.full | fell(1 / 3) | not) then error("too little was learned")
    elif ($r.adapters | fell(1 / 2) | not) then error("adapters learned too little")
    else empty end'
