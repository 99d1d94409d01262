#!/usr/bin/env bash
# A newcomer's day, by the commands of docs/manual/first-job.md and no others: text of one's own, tokens, plan, submit, status, a
# node dies, logs, report, export, generate; on a minipod of four nodes, as its user, with the seconds that each takes.
# As root: scripts/proof/first_job.sh BUILD [FOLDER]   FOLDER: gets what the verbs wrote and said. Ends with one line RESULT {json};
# exit code 0 only if every command did what the page says.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($#)) || { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(realpath "$1") folder=${2-}
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"
run=runs/first rows=()

# takes WHAT COMMAND...: runs it on the login host, and keeps its time and words.
takes() {
  local what=$1 began code=0
  shift
  began=$(date +%s.%N)
  said=$(mini exec --chdir /shared/home "$@" 2>&1) || code=$?
  check "$what: $*" equal "$code" 0
  ((code == 0)) || printf '%s\n' "$said" | sed 's/^/# /'
  rows+=("$(jq -cn --arg what "$what" --arg command "$*" --argjson s "$(jq -n "$(date +%s.%N) - $began | . * 10 | round / 10")" '{$what, $command, $s}')")
  echo "# ${rows[-1]}"
  [[ -z $folder ]] || printf '%s\n' "$said" >"$folder/$what.txt"
}
[[ -z $folder ]] || mkdir -p "$folder"

takes tokens holdfast data prepare --input text.txt --output own.bin --train-vocabulary 2048
takes avail holdfast avail
takes plan holdfast plan quickstart --set data.tokens=own.bin
takes submit holdfast submit quickstart --set run.dir=runs/first --set data.tokens=own.bin --parsable
job=$said began=$(date +%s.%N)
check "it trains" soon 120 step_reached "$run" 60
takes status holdfast status runs/first
check "status knows the step" holds "$said" "step "
takes ls holdfast ls
node=$(nth 2)
mini kill-node "$node"
check "it goes on with a spare" soon 120 training "$run" 2
takes status_after holdfast status runs/first
check "status names the node" holds "$said" "$node"
check "the run is over" soon 400 over "$run"
took=$(jq -n "$(date +%s.%N) - $began | round")
mini revive-node "$node"
check "done" equal "$(result "$run" .status)" "done"
takes logs holdfast logs --job runs/first
check "the job's log says what was lost" holds "$said" "$node"
takes report holdfast report runs/first -o first.html
takes export holdfast ckpt export runs/first first-model
check "with a tokenizer" test -s "$home/first-model/tokenizer.json"
takes generate holdfast generate runs/first --prompt "You may convey" --max-tokens 20
takes generate_export holdfast generate first-model --prompt "You may convey" --max-tokens 20
[[ -z $folder ]] || cp -r "$home/first.html" "$folder/"
echo "1..$count"
jq -cnr --argjson failed "$failed" --argjson checks "$count" --argjson trained_s "$took" \
  '"RESULT " + ({proof: "first_job", $checks, $failed, $trained_s, steps: $ARGS.positional} | tostring)' --jsonargs "${rows[@]}"
exit $((failed > 0))
