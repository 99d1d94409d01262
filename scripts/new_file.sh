#!/usr/bin/env bash
# Begin a new pair of files and its test, in the style of the house.
#
#   scripts/new_file.sh FOLDER/NAME      for example: scripts/new_file.sh slurm/topology
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# == 1 && $1 =~ ^(src/[a-z]+|launcher/[a-z]+|slurm|checkpoint)/([a-z][a-z0-9_]*)$ ]] ||
  { echo "usage: new_file.sh FOLDER/NAME (src/..., launcher/..., slurm or checkpoint; snake_case)" >&2; exit 2; }
folder=${BASH_REMATCH[1]}
name=${BASH_REMATCH[2]}
layer=${folder#src/}
layer=${layer%%/*}
namespace=holdfast
[[ $layer == base ]] || namespace=holdfast::$layer
suite=$(sed -E 's/(^|_)([a-z])/\U\2/g' <<<"$name")

begin() { # PATH, text on stdin
  [[ ! -e $1 ]] || { echo "new_file.sh: $1 exists already" >&2; exit 1; }
  mkdir -p "$(dirname "$1")"
  cat >"$1"
  echo "$1"
}

begin "$folder/$name.hpp" <<END
#pragma once
// TODO: one sentence: what this is for.

namespace $namespace {

}  // namespace $namespace
END
begin "$folder/$name.cpp" <<END
#include "$folder/$name.hpp"

namespace $namespace {

}  // namespace $namespace
END
begin "tests/$layer/${name}_test.cpp" <<END
#include "$folder/$name.hpp"

#include <gtest/gtest.h>

namespace $namespace {
namespace {

TEST($suite, does_what_it_says) { FAIL(); }

}  // namespace
}  // namespace $namespace
END
cat <<END
Now add to $folder/CMakeLists.txt:  $name.cpp
and to tests/$layer/CMakeLists.txt:  holdfast_test(${name}_test SOURCES ${name}_test.cpp LINKS holdfast::$layer LABELS unit)
END
