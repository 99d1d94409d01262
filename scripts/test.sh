#!/usr/bin/env bash
# The second command of the README: install the packages, build with warnings as errors, run all tests. As root, or as a user with sudo
# (the tests that bring up a cluster need root). Leaves build/ci and nothing else behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

scratch=$(mktemp -d /tmp/hf-XXXXXX) # short: Unix sockets live in it
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
  HOLDFAST_MINIPOD_DIR=$scratch/pod scripts/minipod down --purge >/dev/null 2>&1 || true
  as_root rm -rf "$scratch"
  # What the tests wrote as root is ours again.
  ((EUID == 0)) || as_root chown -R "$(id -u):$(id -g)" build/ci 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

step "packages"
scripts/setup.sh

step "build (preset ci: release, warnings are errors)"
cmake --preset ci
cmake --build --preset ci

chmod 0755 "$scratch" # the cluster's own user comes by
status=0

# Those on clusters mostly wait. With the small model several of them leave time to each other and to others on two cores.
step "tests: of one process, of several ranks, and on real SLURM clusters in namespaces, four at a time"
as_root env "TMPDIR=$scratch" "HOLDFAST_MINIPOD_DIR=$scratch/pod" HOLDFAST_TEST_FAST=1 ctest --test-dir build/ci --output-on-failure \
  --no-tests=error -LE '^bench$' -j $(($(nproc) + 4)) --resource-spec-file "$PWD/tests/ctest_resources.json" || status=1

if ((status == 0)); then
  step "all tests passed"
else
  step "some tests FAILED (see above, or build/ci/Testing/Temporary/LastTest.log)"
fi
exit "$status"
