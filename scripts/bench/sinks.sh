#!/usr/bin/env bash
# What `holdfast metrics -f` with both sinks (TensorBoard, OpenMetrics) costs the run that it reads: one rank on this machine, steps of
# some tenths of a second, with and without it, in turns.
#   scripts/bench/sinks.sh BUILD [TURNS=5] [STEPS=200]
# Ends with one line RESULT {json}: the turns' median step in seconds with and without, the median of their ratios less one, and how
# much of one core the sinks used: the most that they can cost a rank on a core of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
(($# >= 1)) || { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1") turns=${2:-5} steps=${3:-200}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
"$build/tests/train/make_tokens" "$dir/tokens.bin" 67 100000
cp tests/fault/{job,model}.toml "$dir/"

train() { # RUN
  (cd "$dir" && OMP_NUM_THREADS=1 timeout 900 "$build/src/train/holdfast-train" "$dir/job.toml" --set "data.tokens=$dir/tokens.bin" --set "run.dir=$dir/$1" \
    --set "train.steps=$steps" --set train.global_batch=16 --set train.sequence=256 --set train.micro_batch=2 --set checkpoint.every=0 \
    --set checkpoint.local=none >"$dir/$1.log" 2>&1) || { tail -n 20 "$dir/$1.log"; exit 1; }
}
median_step() { jq -s '.[5:] | map(.step_s) | sort | .[length / 2 | floor]' "$dir/$1/metrics.jsonl"; }
with() { # TURN: appends to `used` the CPU seconds of the sinks, and the seconds in which they used them
  local begun sinks fields
  train "with-$1" &
  local training=$!
  until [[ -s $dir/with-$1/metrics.jsonl ]]; do kill -0 "$training" || exit 1; sleep 0.1; done
  "$build/launcher/holdfast" metrics "$dir/with-$1" -f --tensorboard "$dir/tb-$1" --openmetrics "$dir/$1.prom" >"$dir/sinks.log" 2>&1 &
  sinks=$! begun=$EPOCHREALTIME
  wait "$training"
  read -r -a fields <"/proc/$sinks/stat"
  used+=("$(jq -cn --argjson ticks $((fields[13] + fields[14])) --argjson hz "$(getconf CLK_TCK)" --argjson wall "$(bc <<<"$EPOCHREALTIME - $begun")" '[$ticks / $hz, $wall]')")
  [[ -s $dir/$1.prom && -n $(find "$dir/tb-$1" -name 'events.out*' -size +1k) ]] || { echo "the sinks have written nothing"; cat "$dir/sinks.log"; exit 1; }
  kill "$sinks"
  wait "$sinks" || true
}
without() { train "without-$1"; }

used=() rows=()
for ((turn = 1; turn <= turns; ++turn)); do
  # Who goes first changes, as a machine may warm up or slow down.
  if ((turn % 2)); then order=(with without); else order=(without with); fi
  for kind in "${order[@]}"; do "$kind" "$turn"; done
  rows+=("[$(median_step "with-$turn"), $(median_step "without-$turn")]")
  echo "turn $turn of $turns: with and without, seconds a step: ${rows[-1]}; CPU seconds of the sinks, of seconds: ${used[-1]}"
done
jq -cnr --argjson rows "[$(IFS=,; echo "${rows[*]}")]" --argjson used "[$(IFS=,; echo "${used[*]}")]" '
  def median: sort | .[length / 2 | floor];
  "RESULT " + ({bench: "sinks", with_step_s: ($rows | map(.[0]) | median), without_step_s: ($rows | map(.[1]) | median),
    overhead: ($rows | map(.[0] / .[1] - 1) | median), sinks_cores: (($used | map(.[0]) | add) / ($used | map(.[1]) | add))} | tostring)'
