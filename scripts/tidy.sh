#!/usr/bin/env bash
# Run clang-tidy (.clang-tidy) over sources that differ from the last commit, or over those given, or over all.
#
#   scripts/tidy.sh [--build DIR] [--all | FILE.cpp...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/dev
if [[ ${1-} == --build ]]; then
  build=$2
  shift 2
fi
command -v clang-tidy >/dev/null || { echo "tidy.sh: clang-tidy is missing. Run scripts/setup.sh clang-tidy?" >&2; exit 1; }
[[ -e $build/compile_commands.json ]] ||
  { echo "tidy.sh: $build has no compile_commands.json. Run 'cmake --preset dev' first?" >&2; exit 1; }

if [[ ${1-} == --all ]]; then
  mapfile -t sources < <(git ls-files '*.cpp')
elif (($#)); then
  sources=("$@")
else
  mapfile -t sources < <({ git diff --name-only --diff-filter=d HEAD; git ls-files -o --exclude-standard; } | grep '\.cpp$' || true)
fi
((${#sources[@]})) || { echo "tidy.sh: no source has changed (--all checks every one)" >&2; exit; }
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet --warnings-as-errors='*' -p "$build"
