# Sourced by capture.sh and capture_accounts.sh with their arguments, FOLDER [WORD...], and `pod_options` set: a minipod that ends
# with the script, and `keep`, which puts a reply into FOLDER.
# shellcheck shell=bash disable=SC2154 # pod_options
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
folder=$1
HOLDFAST_MINIPOD_DIR=$(mktemp -d /var/tmp/holdfast-capture.XXXXXX)
export HOLDFAST_MINIPOD_DIR
pod=$source/scripts/minipod
trap '"$pod" down --purge' EXIT
trap 'exit 130' INT TERM HUP

"$pod" up "${pod_options[@]}" "${@:2}"
mkdir -p "$folder"
mini() { "$pod" exec env SLURM_TIME_FORMAT=%s LC_ALL=C "$@"; }
keep() { mini "${@:2}" >"$folder/$1" 2>&1 || true; } # FILE COMMAND...
