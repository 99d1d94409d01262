#!/usr/bin/env bash
# Fuzz the readers of text that may come from anywhere, one after another.
#
#   tests/fuzz/run.sh BUILD [SECONDS [NAME...]]   SECONDS of each (default 600); NAME: manifest, vote, safetensors,
#                                                 hf_config, adapter_config, message, session, channel, seal,
#                                                 mover_request, bulk, jinja, tokenizer, sentencepiece, run,
#                                                 ledger, checkpoints, flight, hostlist, tuning, card, cluster, job
#
# BUILD is a build tree with HOLDFAST_FUZZ=ON and clang. What is found stays in BUILD/fuzz/NAME: fix it, and put the
# input into tests/fuzz/corpus/NAME, which the test fuzz_regression_test runs ever after.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
(($# >= 1)) || { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$(cd "$1" && pwd) seconds=${2:-600}
shift $(($# < 2 ? $# : 2))
(($#)) || set -- manifest vote safetensors hf_config adapter_config message session channel seal mover_request bulk jinja tokenizer sentencepiece \
  run ledger checkpoints flight hostlist tuning card cluster job

status=0
for name; do
  work=$build/fuzz/$name
  mkdir -p "$work/corpus"
  printf '== %s\n' "$name"
  (cd "$work" && "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 corpus "$here/corpus/$name") || status=1
done
exit "$status"
