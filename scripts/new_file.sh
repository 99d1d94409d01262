#!/usr/bin/env bash
# Begin a new pair of files and its test, in the style of the house.
#
#   scripts/new_file.sh FOLDER/NAME      for example: scripts/new_file.sh slurm/topology
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# == 1 && $1 =~ ^((src|launcher|checkpoint|slurm)(/[a-z]+)*)/([a-z][a-z0-9_]*)$ && -d ${BASH_REMATCH[1]} ]] ||
  { echo "usage: new_file.sh FOLDER/NAME (a folder of src, slurm, launcher or checkpoint that exists; snake_case)" >&2; exit 2; }
folder=${BASH_REMATCH[1]}
name=${BASH_REMATCH[4]}
tests=tests/${folder#src/}
layer=${folder#src/} # of src/train/loop it is train, of src/tools/text text
layer=${layer#tools/}
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
begin "$tests/${name}_test.cpp" <<END
#include "$folder/$name.hpp"

#include <gtest/gtest.h>

namespace $namespace {
namespace {

TEST($suite, does_what_it_says) { FAIL(); }

}  // namespace
}  // namespace $namespace
END
cat <<END
Now name $name.cpp in the CMakeLists.txt of its library, and ${name}_test.cpp in that of the tests beside it.
END
