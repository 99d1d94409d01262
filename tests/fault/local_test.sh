#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# `holdfast run --local`: a run on this machine, without SLURM and without root. A rank that is killed or stands still, Ctrl-C,
# and the death of `holdfast run` itself: the same bits as undisturbed, and no process stays. Then a program with the client.
# Speaks TAP.
#   local_test.sh HOLDFAST MAKE_TOKENS
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
holdfast=$(realpath "$1") make_tokens=$(realpath "$2")
command -v jq >/dev/null || { echo "1..0 # SKIP no jq here"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/hf-local.XXXXXX")
as_user=()
anybody=(setpriv --reuid=61000 --regid=61000 --clear-groups)
if ((EUID == 0)) && "${anybody[@]}" test -x "$holdfast"; then # not where only root may enter the build folder
  as_user=("${anybody[@]}")
  chown 61000:61000 "$folder"
fi
give() { [[ ${#as_user[@]} == 0 ]] || chown -R 61000:61000 "$@"; }
# Nothing of SLURM: neither its variables nor its tools.
mkdir "$folder/bin"
for tool in /usr/bin/* /bin/*; do
  case ${tool##*/} in
    sbatch | srun | squeue | scontrol | sinfo | scancel | sacct | sacctmgr | salloc | sbcast | sstat) ;;
    *) ln -sf "$tool" "$folder/bin/${tool##*/}" ;;
  esac
done
here() { (cd "$folder" && exec "${as_user[@]}" env -i HOME="$folder" PATH="$folder/bin" "$@"); }
trap 'stop_all; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP

cat >"$folder/job.toml" <<END
[cluster]
nodes = 4  # a local run has one
spares = 2
ranks_per_node = 2
[model]
file = "tiny"
[data]
tokens = "$folder/tokens.bin"
[train]
steps = 40
sequence = 64
global_batch = 8
micro_batch = 2
lanes = 2
[checkpoint]
every = 10
END
here "$make_tokens" "$folder/tokens.bin" 2048 100000 || { echo "Bail out! no tokens"; exit 1; }

pids() { pgrep -f "^[^ ]*holdfast[a-z-]* .*$folder/" || true; }
stop_all() { pids | xargs -r kill -KILL 2>/dev/null; }
nothing_stays() { [[ -z $(pids) && -z $(ranks) ]] || { ps -o pid,args -p "$(pids | paste -sd,)"; false; }; }
run='' monitor=0
in_run() { echo "$folder/runs/$1"; }
events() { cat "$(in_run "$run")"/events/*.jsonl 2>/dev/null | jq -cR 'fromjson? // empty'; }
result() { jq -r "$1" "$(in_run "$run")/result.json"; }
durable() { (($(events | jq -s 'map(select(.event == "checkpoint_durable").step) | max // -1') >= $1)); }
attempts() { events | jq -s 'map(select(.event == "attempt_planned")) | length'; }
trains() { [[ $(events | jq -s "map(select(.event == \"first_step\" and .attempt >= $1)) | length") -gt 0 ]]; }
# The processes of the run's ranks: each has its number in its environment.
ranks() {
  local pid
  for pid in $(pgrep -x 'holdfast-train|python3'); do
    tr '\0' '\n' 2>/dev/null < <(cat "/proc/$pid/environ" 2>/dev/null) | grep -qx "HOLDFAST_RUN_DIR=$(in_run "$run")" && echo "$pid"
  done
}
rank() { ranks | sed -n "$1p"; }
# begin NAME ARGUMENT...: in the background; sets run and monitor.
begin() {
  run=$1
  shift
  here "$holdfast" run --local "$@" >>"$folder/$run.log" 2>&1 &
  monitor=$!
}
# A held run lasts until it is let go (src/train/loop/step_hold.hpp).
begin_held() { # NAME [ARGUMENT...]
  begin "$1" "$folder/job.toml" --set "run.name=$1" --set drill.allowed=true "${@:2}"
  soon 30 test -e "$(in_run "$1")/config.toml"
  echo "${hold_s-0.05} 600" >"$(in_run "$1")/hold"
  give "$(in_run "$1")/hold"
}
# `here` may have a shell around it.
to_monitor() { pkill "-$1" -P "$monitor" -x holdfast || kill "-$1" "$monitor"; }
let_go() { rm -f "$(in_run "$run")/hold"; }
# ends_with CODE: not within `check`, whose subshell has no children to wait for.
ends_with() {
  local status=0
  wait "$monitor" || status=$?
  check "$run: exit code $1" equal "$status" "$1"
  ((status == $1)) || sed 's/^/# /' "$folder/$run.log"
}
ends_undisturbed() {
  ends_with 0
  check "$run: the same bits" equal "$(result .state_digest)" "$digest"
  check "$run: no process stays" soon 10 nothing_stays
}

begin undisturbed "$folder/job.toml" --set run.name=undisturbed
ends_with 0
digest=$(result .state_digest)
check "undisturbed: it has a digest" equal "${#digest}" 16
check "undisturbed: it tells its steps" holds "$(cat "$folder/undisturbed.log")" "step 40 of 40"
check "undisturbed: it says nothing of SLURM" equal "$(grep -c SLURM "$folder/undisturbed.log")" 0
check "undisturbed: it is planned once, for this machine" jq -e '.plan == .hypothetical_plan and (.plan.hypothetical | not)' \
  "$(in_run undisturbed)/plan.json"
check "undisturbed: no process stays" soon 10 nothing_stays

begin_held killed
check "killed: a checkpoint is durable" soon 60 durable 10
check "killed: status knows it as a local run" holds "$(here "$holdfast" status killed)" "a local run, process"
check "killed: a second run is refused" holds "$(here "$holdfast" run --local runs/killed 2>&1)" "still going on"
kill -KILL "$(rank 2)"
check "killed: another attempt trains" soon 60 trains 2
let_go
ends_undisturbed

begin_held stopped
check "stopped: it trains" soon 60 durable 10
kill -STOP "$(rank 1)"
check "stopped: the rank that stands still is replaced" soon 90 trains 2
let_go
ends_undisturbed
check "stopped: the cause" holds "$(events | jq -r 'select(.event == "attempt_ended").cause')" "rank hung"

begin_held interrupted
check "interrupted: it trains" soon 60 durable 10
to_monitor INT
ends_with 75
check "interrupted: no process stays" soon 10 nothing_stays
check "interrupted: it says how to go on" holds "$(cat "$folder/interrupted.log")" "holdfast run --local"
let_go
begin interrupted runs/interrupted
ends_undisturbed

begin_held orphaned
check "orphaned: it trains" soon 60 durable 10
to_monitor KILL
wait "$monitor" 2>/dev/null
check "orphaned: its agent saves, and no process stays" soon 30 nothing_stays
check "orphaned: the end is on record" equal "$(events | jq -r 'select(.event == "run_finished").status')" drained
check "orphaned: status says that it has ended" holds "$(here "$holdfast" status orphaned)" "has ended"
let_go
begin orphaned runs/orphaned
ends_undisturbed

begin_held twice
check "twice: it trains" soon 60 durable 10
to_monitor INT
to_monitor TERM
ends_with 143
check "twice: no process stays" soon 10 nothing_stays
check "ls lists local runs" holds "$(here "$holdfast" ls 2>&1)" "runs/twice"

# A run whose held-out loss gets no better (here: by so much), and which keeps the best checkpoint, ends at the same step with the
# same bits when a rank was killed on its way.
early=(--set "data.validation=$folder/tokens.bin" --set eval.every=4 --set eval.patience=3 --set eval.min_delta=100 --set eval.keep_best=true)
begin early "$folder/job.toml" --set run.name=early "${early[@]}"
ends_with 0
digest=$(result .state_digest) best=$(result '.best | tojson')
check "early: it ends early" equal "$(result .final_step)" 16
check "early: it has a best checkpoint" jq -e '.best.step > 0 and .best.held_out_loss > 0' "$(in_run early)/result.json"
hold_s=0.4 begin_held early_killed "${early[@]}"
check "early_killed: a checkpoint is durable" soon 60 durable 4
kill -KILL "$(rank 2)"
check "early_killed: another attempt trains" soon 60 trains 2
let_go
ends_undisturbed
check "early_killed: the same end" equal "$(result .final_step)" 16
check "early_killed: the same best checkpoint" equal "$(result '.best | tojson')" "$best"
check "early_killed: status names it" holds "$(here "$holdfast" status early_killed)" "best        step"

cp "$source/examples/any-program/ranks.py" "$folder/"
mkdir -p "$folder/state"
give "$folder/state" "$folder/ranks.py"
begin program --set run.name=program --set rank.kind=client -- python3 ranks.py "$folder/state" 200 10 20
check "program: it saves" soon 60 durable 10
kill -KILL "$(rank 1)"
ends_with 0
check "program: two attempts" equal "$(attempts)" 2
check "program: no process stays" soon 10 nothing_stays

check "nodes that are not here are refused" holds "$(here "$holdfast" run --local job.toml -N 2 2>&1)" "cannot be 2 in a local run"
conclude
