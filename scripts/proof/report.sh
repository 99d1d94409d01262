#!/usr/bin/env bash
# shellcheck disable=SC2317,SC2119 # check and soon call most functions
# `holdfast report` in a real browser: a job on a minipod loses a node and ends; its page is opened in a headless Chromium, light
# and dark, 360 and 1280 pixels wide, and printed. Each time
#   - nothing is wider than the window, and no text is smaller than 9 pixels;
#   - text has a contrast of at least 4.5 to what is behind it;
#   - the page asks for nothing beside itself, and the console is empty;
#   - numbers of result.json stand in the page, every attempt's cause with its evidence, every kind of time, and the digest.
# Screenshots and the page go to FOLDER. Needs chromium in PATH (Debian's package chromium), and root:
#   scripts/proof/report.sh BUILD FOLDER
set -uo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
(($# == 2)) || { sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
command -v chromium >/dev/null || { echo "report.sh: there is no chromium here. Install Debian's package chromium?" >&2; exit 2; }
build=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
set -- "$build/launcher/holdfast" "$build/src/train/holdfast-train" "$build/src/tools/cli/holdfast-tool"
# shellcheck source=tests/support/fault.sh
source "$source/tests/support/fault.sh"

cp /usr/share/common-licenses/Artistic "$home/other.txt"
chown 61000 "$home/other.txt"
mini exec holdfast data prepare --input /shared/home/other.txt --output /shared/home/other.bin --tokenizer /shared/home/tokens.model >/dev/null ||
  { echo "Bail out! no second source"; exit 1; }
start_held reported --set data.tokens= --set 'data.mixture=["/shared/home/tokens.bin 3", "/shared/home/other.bin 1"]' \
  --set data.validation=/shared/home/other.bin --set eval.every=10 --set eval.samples=4 --set train.peak_tflops=0.01
mid_run 22
mini kill-node "$(nth 2)"
check "$run: another attempt" soon 120 training "$run" 2
ends_as "done" 0
mini exec holdfast report "/shared/home/$run" >"$folder/report.html"
mini exec holdfast report "/shared/home/$run" --markdown >"$folder/report.md"
cp "$home/$run/result.json" "$folder/result.json"
check "the browser" python3 "$source/scripts/proof/report_browser.py" "$folder/report.html" "$folder/result.json" "$folder"
conclude
