#include "src/command_line/complete.hpp"

namespace holdfast::command_line {
namespace {

/// bash splits words at '=' and ':' and replaces only what stands behind the last of these.
constexpr const char* bash_script = R"(_holdfast() {
  local typed=${COMP_LINE:0:COMP_POINT} words line word
  read -ra words <<<"$typed"
  [[ $typed != *[[:space:]] ]] || words+=("")
  local last=${words[-1]} before=
  [[ $last != *[=:]* ]] || before=${last%"${last##*[=:]}"}
  COMPREPLY=()
  while read -r line; do
    case $line in
      :files) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${last#"$before"}") ;;
      :folders) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "${last#"$before"}") ;;
      *)
        word=${line%%$'\t'*}
        [[ $word != *= ]] || compopt -o nospace
        COMPREPLY+=("${word#"$before"}") ;;
    esac
  done < <(holdfast complete -- "${words[@]:1}" 2>/dev/null)
}
complete -F _holdfast holdfast
)";

constexpr const char* zsh_script = R"(#compdef holdfast
_holdfast() {
  local line word
  local -a described keys
  for line in "${(@f)$(holdfast complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      '') ;;
      :files) _files ;;
      :folders) _files -/ ;;
      *)
        word=${${line%%$'\t'*}//:/\\:}
        if [[ $word == *= ]]; then keys+=("$word:${line#*$'\t'}"); else described+=("$word:${line#*$'\t'}"); fi ;;
    esac
  done
  _describe holdfast described
  _describe holdfast keys -S ''
}
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
)";

constexpr const char* fish_script = R"(function __holdfast_complete
    set -l words (commandline -opc)
    for line in (holdfast complete -- $words[2..-1] (commandline -ct) 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :folders
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c holdfast -f -a '(__holdfast_complete)'
)";

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script;
  if (shell == "zsh") return zsh_script;
  if (shell == "fish") return fish_script;
  return "";
}

}  // namespace holdfast::command_line
