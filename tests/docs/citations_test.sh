#!/usr/bin/env bash
# What comments and documents cite exists:
#   - "numerics rule N", "numerics rules N-M, K" and "contract N" in comments have a heading in docs/numerics.md
#   - paths of the repository that docs/*.md name in backquotes, and the targets of their links, are there
# Prints every citation that leads nowhere, with its file and line; exit status 1 when there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

status=0
complain() { printf 'MISSING: %s\n' "$*"; status=1; }

# --- rules and contracts ---

# "rule 4" or "contract 2" for every heading ("### Rule 4: ...") or bold beginning ("**Rule 4.**") of the page.
known=$(sed -nE 's/^(### |\*\*)(Rule|Contract) ([0-9]+)[:.].*/\2 \3/p' docs/numerics.md | tr '[:upper:]' '[:lower:]')

# file:line:citation for each, also where a comment breaks the line inside it.
citations() {
  local sources
  mapfile -t sources < <(find src launcher slurm checkpoint tests -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o \
    -name '*.sh' -o -name '*.py' -o -name '*.cmake' -o -name CMakeLists.txt \) ! -path tests/docs/citations_test.sh | sort)
  awk '
    # The text of neighbouring comments is one text; begins[] says where in it each line begins.
    function search(   rest, gone, at, i) {
      rest = tolower(text); gone = 0
      while (match(rest, /(numerics rules? |contracts? )[0-9]+((, ?| and |-)[0-9]+)*/)) {
        at = gone + RSTART
        for (i = lines; i > 1 && begins[i] > at; --i) {}
        print file ":" numbers[i] ":" substr(rest, RSTART, RLENGTH)
        gone += RSTART + RLENGTH - 1
        rest = substr(rest, RSTART + RLENGTH)
      }
      text = ""; lines = 0
    }
    FNR == 1 { search(); file = FILENAME; marker = file ~ /\.(cpp|hpp|cu)$/ ? "//" : "#" }
    {
      at = index($0, marker)
      if (at == 0) { search(); next }
      comment = substr($0, at)
      gsub(/^[\/#]+[!<]?[ \t]*/, "", comment)
      sub(/[ \t]+$/, "", comment)
      ++lines; begins[lines] = length(text) + 1; numbers[lines] = FNR
      text = text comment " "
    }
    END { search() }' "${sources[@]}"
}

cited=0
while IFS=: read -r file line text; do
  kind=rule
  [[ $text != contract* ]] || kind=contract
  numbers=${text#"${text%%[0-9]*}"}
  for part in ${numbers//[!0-9-]/ }; do
    for ((n = ${part%%-*}; n <= ${part##*-}; ++n)); do
      cited=$((cited + 1))
      grep -qx "$kind $n" <<<"$known" || complain "$file:$line cites $kind $n, which docs/numerics.md does not have"
    done
  done
done < <(citations)
((cited > 0)) || complain "no citation was found at all, so this test reads comments wrongly"

# --- paths ---

there() { [[ -e $1 ]] || compgen -G "$1" >/dev/null; }

# file:line:text of whatever stands in backquotes, or as the target of a link, outside of blocks of code
quoted() {
  awk '
    /^ *```/ { block = !block; next }
    block || /^    / { next }
    {
      rest = $0
      while (match(rest, /`[^`]+`/)) {
        print FILENAME ":" FNR ":path:" substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, 1, RSTART - 1) " " substr(rest, RSTART + RLENGTH)
      }
      rest = $0
      while (match(rest, /\]\([^)]+\)/)) {
        print FILENAME ":" FNR ":link:" substr(rest, RSTART + 2, RLENGTH - 3)
        rest = substr(rest, RSTART + RLENGTH)
      }
    }' "$@"
}

mapfile -d '' -t documents < <(find docs -name '*.md' -print0 | sort -z)
while IFS=: read -r file line kind text; do
  if [[ $kind == link ]]; then
    target=${text%%#*}
    [[ -n $target && $target != *://* && $target != mailto:* ]] || continue
    there "$(dirname "$file")/$target" || complain "$file:$line links to $text"
    continue
  fi
  path=${text%% *}   # `scripts/layers.sh --help`
  path=${path%%:*}   # `src/train/loop/trainer.cpp:12`
  path=${path%[.,;]}
  case $path in
    *…* | *...* | *'<'* | *NAME* | *'$'*) ;; # stands for many
    src/* | launcher/* | configs/* | checkpoint/* | scripts/* | tests/* | slurm/* | docs/* | cmake/*)
      there "$path" || complain "$file:$line names $path" ;;
  esac
done < <(quoted "${documents[@]}")

((status == 0)) && echo "$cited citations and all paths lead somewhere"
exit "$status"
