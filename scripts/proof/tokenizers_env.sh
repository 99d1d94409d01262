# Sourced by the scripts that put other tokenizers beside ours. tokenizers_env sets tokenizers_python, the interpreter of
# an environment with tokenizers and sentencepiece, and aside, a folder that is removed at the end.
# shellcheck shell=bash
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

tokenizers_env() {
  aside=$(mktemp -d "${TMPDIR:-/tmp}/hf-tokenizers.XXXXXX")
  trap 'rm -rf "$aside"' EXIT
  trap 'exit 130' INT TERM HUP
  mkdir "$aside/models"
  local env=${HOLDFAST_TORCH_ENV:-$aside/env}
  tokenizers_python=$env/bin/python
  if ! "$tokenizers_python" -c 'import numpy, sentencepiece, tokenizers' 2>/dev/null; then
    step "environment: pip install tokenizers sentencepiece numpy"
    [[ -x $tokenizers_python ]] || python3 -m venv "$env"
    quietly "$aside/pip.log" "$env/bin/pip" install --no-cache-dir tokenizers sentencepiece numpy
  fi
  say "$("$tokenizers_python" -c 'import platform, sentencepiece, tokenizers
print(f"Python {platform.python_version()}, tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}")')"
}
