#pragma once
// Which launchers of ranks are known, and what becomes of their options: tables, and nothing else. The
// options are those of torchrun in PyTorch 2.9, accelerate 1.15 and DeepSpeed 0.18. An option that is in no
// table is refused by its name, because nobody knows what it would change.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::launcher::others {

using std::string_view;

enum class Kind { torchrun, torch_launch, accelerate, deepspeed };

enum class Fate {
  nodes,         ///< of torchrun, "N" or "MIN:MAX"
  per_node,      ///< a number, or a word for the GPUs
  total,         ///< of ranks on all nodes
  module,        ///< the script is a module
  no_python,     ///< the script is the program
  no_rank,       ///< the script gets no --local_rank
  config,        ///< a file with more options
  gpus,          ///< a list of them
  variable,      ///< the launcher passes it on in the variable `text`
  flag,          ///< the same, with the value `text`
  dropped,       ///< `text` says why it is not needed
  default_only,  ///< dropped with the value `text`, else refused
  refused        ///< `text` says what to write instead
};
struct Option {
  string_view names;  ///< with single blanks between; '-' stands for '_', too
  bool takes_value;
  Fate fate;
  string_view text = "";
};

struct Launcher {
  Kind kind;
  const char* name;
  std::span<const Option> options;
  bool abbreviates;    ///< the begin of an option's name will do
  int per_node;        ///< ranks, where the command line does not say it; 0: one for each GPU
  string_view number;  ///< that the script gets behind its name, with the rank in the node
};
const Launcher& launcher_of(Kind kind);

/// An option of accelerate that would need many variables, which it passes to the script.
bool needs_many_variables(const std::string& option);
/// What to write instead of one of these.
extern const string_view in_the_script;

struct Spelling {
  string_view words;  ///< a program, with what must follow it; "-m": behind a Python interpreter
  Kind kind;
};
std::span<const Spelling> spellings();

constexpr string_view with_mpi = "mpi";  ///< RefusedProgram::instead: the program behind it, as one of MPI
struct RefusedProgram {
  string_view words;  ///< as in Spelling; a '*' at the end stands for anything
  string_view why;
  string_view instead = "";  ///< "": the program behind it
  string_view unless = "";   ///< words with which it starts none
};
/// Launchers that leave the job, or that start ranks of their own.
const std::vector<RefusedProgram>& refused_programs();

/// A program that runs another one, which is named among its arguments.
bool is_wrapper(const std::string& program);
/// A wrapper that chooses an environment, with an interpreter of its own.
bool chooses_environment(const std::string& program);
/// An option of a wrapper whose value might be taken for a launcher.
bool takes_name(const std::string& option);
bool is_shell(const std::string& program);

}  // namespace holdfast::launcher::others
