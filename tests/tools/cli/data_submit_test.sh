#!/usr/bin/env bash
# shellcheck disable=SC2317 # check and soon call most functions
# `holdfast data submit` on a real SLURM: a chain of arrays and jobs makes the bytes that one process makes.
# data_submit_test.sh HOLDFAST TOOL. Speaks TAP; exits 77 where there is no SLURM to test with.
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$@"
programs=("$(realpath "$1")" "$(realpath "$2")")

HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/hf-data.XXXXXX)
export HOLDFAST_MINIPOD_DIR
# shellcheck source=tests/support/pod.sh
source "$source/tests/support/pod.sh"
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini up --nodes 2 || { echo "Bail out! no minipod"; exit 1; }
install_programs "${programs[@]}"
data() { mini exec --chdir /shared/home holdfast data "$@"; }

# Some 3 MB in three parts, and a compressed file in which every line comes twice.
text=$home/in
mkdir "$text"
lines=$(jq -Rc 'select(length > 20) | {text: .}' /usr/share/common-licenses/{GPL-3,GPL-2,LGPL-2.1,Apache-2.0})
for ((i = 0; i < 30; ++i)); do printf '%s\n' "${lines//'"}'/" $i\"}"}"; done >"$text/part-00000.jsonl"
printf '%s\n' "$lines" "$lines" '{"text": "broken' | gzip >"$text/part-00001.jsonl.gz"
touch "$text/_SUCCESS"
chown -R 61000 "$text"

options=(--input in --train-vocabulary 1024 --dedupe exact --val-fraction 0.1 --pack 512)
check "one process does it" data prepare "${options[@]}" --output local.bin
check "--dry-run prints a script for each stage" equal \
  "$(data submit "${options[@]}" --output jobs.bin --tasks 2 --dry-run | grep -c '^exec ')" 5
check "and makes nothing" test ! -e "$home/jobs.bin.work"
last=$(data submit "${options[@]}" --output jobs.bin --tasks 2 --parsable -- --time 5)
check "submit prints the last job" grep -qx '[0-9]*' <<<"$last"
check "the chain ends" soon 90 test -e "$home/jobs.bin"
check "in the same bytes" cmp "$home/local.bin" "$home/jobs.bin"
check "the held-out part too" cmp "$home/local.val.bin" "$home/jobs.val.bin"
check "and the tokenizer" cmp "$home/local.model" "$home/jobs.model"
counts() { jq -c '[.read, .removed, .kept, .inputs, .output.identity]' "$home/$1.card.json"; }
check "the cards say the same" equal "$(counts jobs.bin)" "$(counts local.bin)"
check "duplicates were found" at_least "$(jq .removed.exact "$home/jobs.bin.card.json")" 100
check "logs stay" soon 20 grep -q 'broken lines' "$home/jobs.bin.work/jobs/data-merge-$last.log"
check "what is refused is refused at once" equal "$(data submit "${options[@]}" --pack 1 --output x.bin --tasks 2 >/dev/null 2>&1; echo $?)" 2
check "in the tool's words" holds "$(data submit --input in --output x.bin --tasks 2 2>&1)" "which tokenizer?"
((failed == 0)) || tail -n 5 "$home"/jobs.bin.work/jobs/*.log | sed 's/^/# /'
conclude
