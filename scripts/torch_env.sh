# Sourced by the scripts that put PyTorch beside us. torch_env sets torch_python, the interpreter of an environment with
# current torch, transformers and safetensors: the one in HOLDFAST_TORCH_ENV, made when missing, or one of its own, whose
# folder is then in torch_throw_away, to be removed by the caller's trap.
# shellcheck shell=bash
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

torch_env() {
  local env=${HOLDFAST_TORCH_ENV-}
  if [[ -z $env ]]; then
    torch_throw_away=$(mktemp -d "${TMPDIR:-/tmp}/hf-torch.XXXXXX")
    env=$torch_throw_away
  fi
  torch_python=$env/bin/python
  if ! "$torch_python" -c 'import safetensors, torch, transformers' 2>/dev/null; then
    step "environment: pip install torch transformers safetensors numpy (several GB)"
    python3 -m venv "$env"
    quietly "$env/pip.log" "$env/bin/pip" install --no-cache-dir torch transformers safetensors numpy
  fi
  say "$("$torch_python" -c 'import platform, torch, transformers
print(f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}")')"
}
