#!/usr/bin/env bash
# Rewrites the golden files under tests/, and the tables of events in docs/, with what the programs print now. Read the difference before you commit it.
# usage: scripts/golden_update.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/dev}
HOLDFAST_UPDATE_GOLDEN=1 ctest --test-dir "$build" -R Golden --output-on-failure
git diff --stat -- tests docs
