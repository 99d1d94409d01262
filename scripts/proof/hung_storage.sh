#!/usr/bin/env bash
# Shared storage that hangs for as long as it does in the world: for ten minutes on all nodes while a run trains, and for one
# minute in each of the other cases of tests/fault/storage_test.sh. A run is held, so that the machine may do other things.
# As root; about 25 minutes.
#   scripts/proof/hung_storage.sh HOLDFAST TRAIN TOOL
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export HOLDFAST_TEST_FAST=1
# A held run takes five steps a second.
HOLDFAST_HANG_S=600 HOLDFAST_TEST_STEPS=3600 "$source/tests/fault/storage_test.sh" "$@" all_hang
HOLDFAST_HANG_S=60 HOLDFAST_TEST_STEPS=500 "$source/tests/fault/storage_test.sh" "$@" \
  one_hangs leader_hangs killed_while_all_hang takeover_hangs restore_hangs save_hangs
