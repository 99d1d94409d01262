#!/usr/bin/env bash
# Run all tests of one process and of several ranks under a sanitizer, in shards, and go on where the last call stopped.
#
#   scripts/sanitizers.sh PRESET [MINUTES]   PRESET: asan (addresses and undefined behaviour) or tsan (threads);
#                                            no shard begins after MINUTES (40)
#
# Shard K of 32 has every 32nd test from the Kth on. What a shard printed is kept in build/PRESET/shards/COMMIT/K.log, and renamed
# to K.passed when all of its tests passed: a shard that has passed is not run again for that commit. Ends with 0 when all
# have passed, 1 when one has failed, and 75 when there was no time for some: then call it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

shards=32
preset=${1-} minutes=${2-40}
[[ $preset == asan || $preset == tsan ]] || die "there is no preset '$preset' (asan, tsan)"
[[ $minutes =~ ^[0-9]+$ ]] || die "'$minutes' is no number of minutes"
[[ -z $(git status --porcelain) ]] || die "some changes are not committed (results are kept by commit). Commit them first?"
commit=$(git rev-parse --short HEAD)
record=build/$preset/shards/$commit

step "build ($preset)"
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
mkdir -p "$record"

begin=$SECONDS failed=() left=() tests=0
for ((shard = 1; shard <= shards; ++shard)); do
  if [[ ! -e $record/$shard.passed ]]; then
    if ((SECONDS - begin >= 60 * minutes)); then
      left+=("$shard")
      continue
    fi
    step "$preset at $commit: shard $shard of $shards"
    if ctest --preset "$preset" -j "$(nproc)" -I "$shard,,$shards" >"$record/$shard.log" 2>&1; then
      mv "$record/$shard.log" "$record/$shard.passed"
    else
      failed+=("$shard")
      grep -E '^[[:space:]]*[0-9]+ - |tests passed' "$record/$shard.log" || tail -n 20 "$record/$shard.log"
      continue
    fi
  fi
  tests=$((tests + $(sed -n 's/^.* tests failed out of //p' "$record/$shard.passed")))
done

say "$preset at $commit: $((shards - ${#failed[@]} - ${#left[@]})) of $shards shards passed ($tests tests)"
((${#failed[@]} == 0)) || { say "failed: shards ${failed[*]} ($record/K.log)"; exit 1; }
((${#left[@]} == 0)) || { say "not run yet: ${#left[@]} shards"; exit 75; }
