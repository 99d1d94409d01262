#!/usr/bin/env bash
# Format all tracked C and C++ sources with .clang-format; with --check only say which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang-format >/dev/null || { echo "format.sh: clang-format is missing. Run scripts/setup.sh?" >&2; exit 1; }

mapfile -t sources < <(git ls-files '*.cpp' '*.hpp' '*.cu' 'client/*.[ch]' 'examples/*.c' 'tests/client/*.c')
case ${1-} in
  '') clang-format -i "${sources[@]}" ;;
  --check) clang-format --dry-run --Werror "${sources[@]}" ;;
  *) echo "usage: format.sh [--check]" >&2; exit 2 ;;
esac
