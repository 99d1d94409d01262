// Which launchers are known, and what becomes of their options, are tables: `spellings` (how a launcher is
// called), `refused_programs` (those that leave the job), and a table of options for each of the three that
// are taken over. The options are those of torchrun in PyTorch 2.9, accelerate 1.15 and DeepSpeed 0.18. An
// option that is in no table is refused by its name, because nobody knows what it would change.
//
// A launcher is looked for at the begin of the command, behind programs that run another one (`wrappers`:
// env, nohup, uv run, ...), and in the text of `sh -c`. What a script file starts is only warned of: its
// words do not show which of its lines are run.
//
// accelerate tells the script what it decided by variables. Those of one variable for an option are set in
// rank.environment; what takes many of them, with defaults that differ from version to version (FSDP,
// DeepSpeed, Megatron-LM), is refused.
#include "launcher/job/other_launchers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>

#include "slurm/tools.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

using Words = std::vector<std::string>;
using std::string_view;

enum class Kind { torchrun, torch_launch, accelerate, deepspeed };

// --- options ---

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

constexpr string_view agents_meet = "agents find each other, and tell the ranks where rank 0 is";
constexpr string_view own_logs = "each rank has a log of its own in the run directory";
constexpr string_view own_restarts = "supervise.max_restarts is Holdfast's";
constexpr string_view own_watch = "the agent sees the end of a rank at once";

constexpr std::array torchrun_options = {
    Option{"nnodes", true, Fate::nodes},
    Option{"nproc-per-node", true, Fate::per_node},
    Option{"rdzv-backend rdzv-endpoint rdzv-id rdzv-conf node-rank master-addr master-port local-addr", true,
           Fate::dropped, agents_meet},
    Option{"standalone", false, Fate::dropped, agents_meet},
    Option{"max-restarts", true, Fate::dropped, own_restarts},
    Option{"monitor-interval", true, Fate::dropped, own_watch},
    Option{"start-method", true, Fate::dropped, "ranks are programs, not children of a Python process"},
    Option{"event-log-handler", true, Fate::dropped, "every decision is in events/ of the run directory"},
    Option{"m module", false, Fate::module},
    Option{"no-python", false, Fate::no_python},
    Option{"run-path", false, Fate::dropped, "a rank runs in an interpreter of its own"},
    Option{"log-dir r redirects t tee local-ranks-filter logs-specs", true, Fate::dropped, own_logs},
    Option{"use-env", false, Fate::no_rank},
    Option{"role", true, Fate::default_only, "default"},
    Option{"numa-binding", true, Fate::refused, "Let the program bind itself, by LOCAL_RANK"},
    Option{"signals-to-handle", true, Fate::refused,
           "Ranks get SIGTERM when the run is to end, and no other"},
};

constexpr std::array accelerate_options = {
    Option{"num-processes", true, Fate::total},
    Option{"num-machines", true, Fate::nodes},
    Option{"config-file", true, Fate::config},
    Option{"mixed-precision", true, Fate::variable, "ACCELERATE_MIXED_PRECISION"},
    Option{"dynamo-backend", true, Fate::variable, "ACCELERATE_DYNAMO_BACKEND"},
    Option{"dynamo-mode", true, Fate::variable, "ACCELERATE_DYNAMO_MODE"},
    Option{"dynamo-use-fullgraph", false, Fate::flag, "ACCELERATE_DYNAMO_USE_FULLGRAPH=True"},
    Option{"dynamo-use-dynamic", false, Fate::flag, "ACCELERATE_DYNAMO_USE_DYNAMIC=True"},
    Option{"dynamo-use-regional-compilation", false, Fate::flag,
           "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=True"},
    Option{"num-cpu-threads-per-process", true, Fate::variable, "OMP_NUM_THREADS"},
    Option{"cpu", false, Fate::flag, "ACCELERATE_USE_CPU=True"},
    Option{"debug", false, Fate::flag, "ACCELERATE_DEBUG_MODE=true"},
    Option{"enable-cpu-affinity", false, Fate::flag, "ACCELERATE_CPU_AFFINITY=1"},
    Option{"gpu-ids", true, Fate::gpus},
    Option{"multi-gpu", false, Fate::dropped, "a node has a rank for each GPU"},
    Option{"q quiet", false, Fate::dropped, own_logs},
    Option{"same-network", false, Fate::dropped, agents_meet},
    Option{"machine-rank main-process-ip main-process-port rdzv-backend rdzv-conf", true, Fate::dropped,
           agents_meet},
    Option{"max-restarts", true, Fate::dropped, own_restarts},
    Option{"monitor-interval", true, Fate::dropped, own_watch},
    Option{"t tee log-dir", true, Fate::dropped, own_logs},
    Option{"role", true, Fate::default_only, "default"},
    Option{"m module", false, Fate::module},
    Option{"no-python", false, Fate::no_python},
};
// Options of accelerate, by how they begin, that would need many variables.
constexpr std::array accelerate_groups = {
    "use-",         "fsdp-", "deepspeed-", "zero",   "offload-", "gradient-", "megatron-",
    "parallelism-", "fp8-",  "tpu",        "no-tpu", "vm",       "env",       "main-training-function",
    "downcast-",    "aws-",  "mpirun-"};
constexpr string_view in_the_script =
    "accelerate passes it to the script by variables of its own, which differ from version to version. "
    "Choose it in the "
    "script (Accelerator(fsdp_plugin=..., deepspeed_plugin=...)), or set the variables in rank.environment";

constexpr std::array deepspeed_options = {
    Option{"num-nodes", true, Fate::nodes},
    Option{"num-gpus num-accelerators", true, Fate::per_node},
    Option{"H hostfile", true, Fate::dropped, "SLURM chooses the nodes"},
    Option{"master-port master-addr node-rank ssh-port", true, Fate::dropped, agents_meet},
    Option{"launcher launcher-args", true, Fate::dropped, "agents start the ranks"},
    Option{"no-ssh no-ssh-check force-multi save-pid", false, Fate::dropped, "agents start the ranks"},
    Option{"enable-each-rank-log", true, Fate::dropped, own_logs},
    Option{"module", false, Fate::module},
    Option{"no-python", false, Fate::no_python},
    Option{"no-local-rank", false, Fate::no_rank},
    Option{"i include e exclude", true, Fate::refused,
           "Nodes are chosen by -w and -x of submit, GPUs by CUDA_VISIBLE_DEVICES in rank.environment"},
    Option{"min-elastic-nodes max-elastic-nodes", true, Fate::refused,
           "Write -N, and supervise.min_nodes for the least"},
    Option{"elastic-training", false, Fate::refused, "Write -N, and supervise.min_nodes for the least"},
    Option{"autotuning", true, Fate::refused, "Run the autotuner outside of Holdfast"},
    Option{"account", true, Fate::refused, "Write -A of submit"},
    Option{"comment", true, Fate::refused, "Write '-- --comment=TEXT' behind submit's options"},
    Option{"bind-cores-to-rank", false, Fate::refused, "Let the program bind itself, by LOCAL_RANK"},
    Option{"bind-core-list", true, Fate::refused, "Let the program bind itself, by LOCAL_RANK"},
};

struct Launcher {
  Kind kind;
  const char* name;
  std::span<const Option> options;
  bool abbreviates;    ///< the begin of an option's name will do
  int per_node;        ///< ranks, where the command line does not say it; 0: one for each GPU
  string_view number;  ///< that the script gets behind its name, with the rank in the node
};
const Launcher& launcher_of(Kind kind) {
  static const std::array all = {
      Launcher{Kind::torchrun, "torchrun", torchrun_options, true, 1, ""},
      Launcher{Kind::torch_launch, "torch.distributed.launch", torchrun_options, true, 1, "--local-rank"},
      Launcher{Kind::accelerate, "accelerate launch", accelerate_options, false, 0, ""},
      Launcher{Kind::deepspeed, "deepspeed", deepspeed_options, true, 0, "--local_rank"},
  };
  return *std::ranges::find(all, kind, &Launcher::kind);
}

// --- how they are called ---

struct Spelling {
  string_view words;  ///< a program, with what must follow it; "-m": behind a Python interpreter
  Kind kind;
};
constexpr std::array spellings = {
    Spelling{"torchrun", Kind::torchrun},
    Spelling{"-m torch.distributed.run", Kind::torchrun},
    Spelling{"-m torch.distributed.launch", Kind::torch_launch},
    Spelling{"accelerate launch", Kind::accelerate},
    Spelling{"accelerate-launch", Kind::accelerate},
    Spelling{"-m accelerate.commands.launch", Kind::accelerate},
    Spelling{"-m accelerate.commands.accelerate_cli launch", Kind::accelerate},
    Spelling{"deepspeed", Kind::deepspeed},
    Spelling{"ds", Kind::deepspeed},
    Spelling{"-m deepspeed.launcher.runner", Kind::deepspeed},
};

constexpr string_view of_slurm =
    "its ranks would be steps or jobs of SLURM, of which Holdfast knows nothing; Holdfast itself starts a "
    "rank for each "
    "GPU of each node";
constexpr string_view of_mpi =
    "each rank would start an MPI job of its own; Holdfast's agents start the ranks, and serve PMIx to them";
constexpr string_view of_itself =
    "it starts ranks of its own, and under Holdfast every rank would start them";
constexpr string_view with_mpi = "mpi";  ///< RefusedProgram::instead: the program behind it, as one of MPI
struct RefusedProgram {
  string_view words;  ///< as in Spelling; a '*' at the end stands for anything
  string_view why;
  string_view instead = "";  ///< "": the program behind it
  string_view unless = "";   ///< words with which it starts none
};
constexpr std::array other_refused = {
    RefusedProgram{"flux run", of_slurm},
    RefusedProgram{"flux submit", of_slurm},
    RefusedProgram{"flux batch", of_slurm},
    RefusedProgram{"flux alloc", of_slurm},
    RefusedProgram{"torchx run", of_slurm},
    RefusedProgram{"mpirun", of_mpi, with_mpi},
    RefusedProgram{"mpirun.*", of_mpi, with_mpi},
    RefusedProgram{"mpirun_rsh", of_mpi, with_mpi},
    RefusedProgram{"mpiexec", of_mpi, with_mpi},
    RefusedProgram{"mpiexec.*", of_mpi, with_mpi},
    RefusedProgram{"orterun", of_mpi, with_mpi},
    RefusedProgram{"prterun", of_mpi, with_mpi},
    RefusedProgram{"prun", of_mpi, with_mpi},
    RefusedProgram{"aprun", of_mpi, with_mpi},
    RefusedProgram{"jsrun", of_mpi, with_mpi},
    RefusedProgram{"ibrun", of_mpi, with_mpi},
    RefusedProgram{"horovodrun", of_mpi, with_mpi},
    RefusedProgram{"composer", of_itself},
    RefusedProgram{"fabric run", of_itself},
    RefusedProgram{"lightning run", of_itself},
    RefusedProgram{"colossalai run", of_itself},
    RefusedProgram{"tune run --n*", of_itself, "Leave torchrun's options out: 'tune run RECIPE ...'"},
    RefusedProgram{"axolotl train", of_itself, "Add '--launcher python'", "--launcher python"},
    RefusedProgram{"llamafactory-cli train", of_itself,
                   "Write its module: 'python3 -m llamafactory.launcher CONFIG'"},
};
const std::vector<RefusedProgram>& refused_programs() {
  static const auto all = [] {
    std::vector<RefusedProgram> out(other_refused.begin(), other_refused.end());
    for (const string_view tool : slurm::tools_that_launch) out.push_back({tool, of_slurm});
    return out;
  }();
  return all;
}

// Programs that run another one, which is named among their arguments; and shells.
constexpr std::array wrappers = {
    "env",       "nohup",   "exec",    "command", "time",  "setsid",     "nice",       "ionice", "chrt",
    "stdbuf",    "timeout", "numactl", "taskset", "uv",    "uvx",        "poetry",     "pipenv", "pdm",
    "hatch",     "rye",     "pixi",    "conda",   "mamba", "micromamba", "xvfb-run",   "nsys",   "ncu",
    "catchsegv", "strace",  "ltrace",  "perf",    "sudo",  "apptainer",  "singularity"};
// Those of them that choose an environment, with an interpreter of its own.
constexpr std::array environments = {"uv",         "uvx",       "poetry",     "pipenv", "pdm",
                                     "hatch",      "rye",       "pixi",       "conda",  "mamba",
                                     "micromamba", "apptainer", "singularity"};
// Options of these whose value might be taken for a launcher.
constexpr std::array wrapper_values = {"--with", "--extra", "--group", "--package", "--python",
                                       "-n",     "--name",  "-p",      "--prefix",  "-e",
                                       "-o",     "-u",      "--from"};
constexpr std::array shells = {"sh", "bash", "dash", "zsh", "ksh"};

std::string base(const std::string& word) { return std::filesystem::path(word).filename().string(); }
template <class Names>
bool is_one_of(const Names& names, const std::string& word) {
  return std::ranges::find(names, string_view(word)) != std::end(names);
}
bool is_python(const std::string& word) {
  const std::string name = base(word);
  return name.starts_with("python") &&
         std::ranges::all_of(name.substr(6), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}
bool is_assignment(const std::string& word) {
  const auto equals = word.find('=');
  return equals != std::string::npos && equals > 0 && !word.starts_with('-') &&
         word.find_first_of("/.") > equals;
}

/// Do `words` from `at` on spell `wanted`? Returns how many words that takes; 0: they do not.
std::size_t spells(const Words& words, std::size_t at, string_view wanted) {
  std::size_t taken = 0;
  while (!wanted.empty()) {
    const auto end = std::min(wanted.find(' '), wanted.size());
    const string_view word = wanted.substr(0, end);
    wanted.remove_prefix(std::min(end + 1, wanted.size()));
    if (at + taken >= words.size()) return 0;
    const std::string here = taken == 0 ? base(words[at + taken]) : words[at + taken];
    const bool begins = word.ends_with('*') && here.starts_with(word.substr(0, word.size() - 1));
    if (here != word && !begins) return 0;
    ++taken;
  }
  return taken;
}

struct Found {
  const Launcher* launcher = nullptr;
  const RefusedProgram* refused = nullptr;
  std::size_t begin = 0, end = 0;  ///< of the words that call it, its interpreter among them
  std::string name = "";
  explicit operator bool() const { return launcher || refused; }
};

/// The launcher that the words from `at` on call at once.
Found called_at(const Words& words, std::size_t at) {
  for (const auto& program : refused_programs())
    if (const auto taken = spells(words, at, program.words)) {
      const std::string all = fmt::format("{}", fmt::join(words, " "));
      if (program.unless.empty() || all.find(program.unless) == std::string::npos)
        return {nullptr, &program, at, at + taken,
                fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(at),
                                            words.begin() + static_cast<std::ptrdiff_t>(at + taken), " "))};
    }
  std::size_t module = at;
  if (at < words.size() && is_python(words[at])) {
    // Options of the interpreter come before -m; -X and -W have a value.
    for (++module; module < words.size() && words[module].starts_with('-') && words[module] != "-m"; ++module)
      if (words[module] == "-X" || words[module] == "-W") ++module;
  }
  for (const auto& spelling : spellings) {
    const bool behind_python = spelling.words.starts_with("-m");
    if (behind_python && module == at) continue;
    const std::size_t from = behind_python ? module : at;
    if (const auto taken = spells(words, from, spelling.words))
      return {&launcher_of(spelling.kind), nullptr, at, from + taken, launcher_of(spelling.kind).name};
  }
  return {};
}

/// The same, behind assignments and programs that run another one.
Found called_by(const Words& words) {
  std::size_t at = 0;
  while (at < words.size() && is_assignment(words[at])) ++at;
  if (at == words.size()) return {};
  if (const Found found = called_at(words, at)) return found;
  if (!is_one_of(wrappers, base(words[at]))) return {};
  for (std::size_t i = at + 1; i < words.size(); ++i) {
    if (is_one_of(wrapper_values, words[i])) {
      ++i;
      continue;
    }
    if (const Found found = called_at(words, i)) return found;
    if (is_python(words[i]) || is_one_of(shells, base(words[i]))) return {};  // that is what it runs
  }
  return {};
}

// --- options and their values ---

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

/// The option without its dashes, '-' for '_'.
std::string option_name(string_view word) {
  const auto begin = word.find_first_not_of('-');
  std::string name(begin == string_view::npos ? "" : word.substr(begin));
  std::ranges::replace(name, '_', '-');
  return name;
}

bool names_option(const Option& option, string_view name) {
  const std::string all = fmt::format(" {} ", option.names);
  return all.find(fmt::format(" {} ", name)) != std::string::npos;
}
bool begins_a_name(const Option& option, string_view begin) {
  return begin.size() > 1 &&
         fmt::format(" {}", option.names).find(fmt::format(" {}", begin)) != std::string::npos;
}

const Option* option_called(const Launcher& launcher, const std::string& name) {
  for (const Option& option : launcher.options)
    if (names_option(option, name)) return &option;
  const Option* begun = nullptr;
  for (const Option& option : launcher.options)
    if (launcher.abbreviates && begins_a_name(option, name)) {
      if (begun) return nullptr;
      begun = &option;
    }
  return begun;
}

[[noreturn]] void refuse_option(const Launcher& launcher, const std::string& word, string_view instead) {
  throw Error(Exit::usage, fmt::format("{}'s option {} cannot be kept", launcher.name, word),
              "Holdfast takes the launcher's place, and starts the ranks itself",
              fmt::format("{}?", instead));
}

int number_in(const Launcher& launcher, const std::string& option, string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw Error(Exit::usage, fmt::format("{}'s option {} has no number", launcher.name, option),
                fmt::format("'{}'", text));
  return value;
}

void take_nodes(LauncherCommand& out, const Launcher& launcher, const std::string& option,
                const std::string& value) {
  const auto colon = value.find(':');
  out.nodes =
      number_in(launcher, option, string_view(value).substr(colon == std::string::npos ? 0 : colon + 1));
  if (colon == std::string::npos) return;
  out.min_nodes = number_in(launcher, option, string_view(value).substr(0, colon));
  if (*out.min_nodes == *out.nodes) out.min_nodes.reset();
}

void take_option(LauncherCommand& out, const Launcher& launcher, const Option& option,
                 const std::string& word, const std::string& value) {
  switch (option.fate) {
    case Fate::nodes:
      return take_nodes(out, launcher, word, value);
    case Fate::per_node:
      if (value == "gpu" || value == "auto" || value == "-1")
        out.per_node = 0;
      else if (value == "cpu" || value == "xpu")
        refuse_option(launcher, word + " " + value, "Write the number");
      else
        out.per_node = number_in(launcher, word, value);
      return;
    case Fate::total:
      out.total = number_in(launcher, word, value);
      return;
    case Fate::gpus:
      if (value == "all") return;
      out.environment.push_back("CUDA_VISIBLE_DEVICES=" + value);
      if (!out.per_node) out.per_node = static_cast<int>(std::ranges::count(value, ',')) + 1;
      return;
    case Fate::variable:
      if (value == "fp8") refuse_option(launcher, word + " " + value, in_the_script);
      // As accelerate spells the backend's name.
      out.environment.push_back(
          fmt::format("{}={}", option.text, option.text.ends_with("_BACKEND") ? upper(value) : value));
      return;
    case Fate::flag:
      out.environment.emplace_back(option.text);
      return;
    case Fate::dropped:
      out.dropped.emplace_back(word, option.text);
      return;
    case Fate::default_only:
      if (value != option.text)
        refuse_option(launcher, word + " " + value, "All ranks of a run are one program: leave it out");
      return;
    case Fate::refused:
      refuse_option(launcher, word, option.text);
    case Fate::module:
    case Fate::no_python:
    case Fate::no_rank:
    case Fate::config:
      return;  // by the caller
  }
}

// --- accelerate's file of options ---

/// "key: value" of a file that `accelerate config` has written; what is indented or in braces belongs to the
/// key before.
std::map<std::string, std::string> keys_of(const std::string& yaml) {
  std::map<std::string, std::string> out;
  std::string last;
  for (const string_view line : lines_of(yaml)) {
    if (line.empty() || line.starts_with('#') || line.starts_with("---")) continue;
    if (line.starts_with(' ') || line.starts_with('\t')) {
      if (!last.empty()) out[last] += "...";
      continue;
    }
    const auto colon = line.find(':');
    if (colon == string_view::npos) continue;
    last = line.substr(0, colon);
    string_view value = trimmed(line.substr(colon + 1));
    if (value.size() > 1 && (value.front() == '\'' || value.front() == '"'))
      value = value.substr(1, value.size() - 2);
    out[last] = value;
  }
  return out;
}

/// Options of the command line win.
void take_file(LauncherCommand& out, const Launcher& launcher, const std::string& path,
               const std::string& text) {
  static constexpr std::array plain_types = {"NO", "MULTI_GPU", "MULTI_CPU"};
  auto keys = keys_of(text);
  const auto take = [&](const char* key) {
    const auto node = keys.extract(key);
    return node.empty() || node.mapped() == "null" || node.mapped() == "{}" ? "" : node.mapped();
  };
  const auto refuse = [&](const std::string& key, const std::string& value) {
    throw Error(Exit::usage, fmt::format("{} of {} cannot be kept", key, path),
                value.empty() ? "" : fmt::format("it is {}", value), fmt::format("{}?", in_the_script));
  };
  if (const auto type = take("distributed_type"); !type.empty() && !is_one_of(plain_types, type))
    refuse("distributed_type", type);
  if (const auto where = take("compute_environment"); !where.empty() && where != "LOCAL_MACHINE")
    refuse("compute_environment", where);
  const auto has = [&](const char* variable) {
    return std::ranges::any_of(out.environment, [&](const std::string& entry) {
      return entry.starts_with(std::string(variable) + "=");
    });
  };
  const auto use = [&](const char* key, const char* option) {
    const auto value = take(key);
    const Option& means = *option_called(launcher, option);
    if (value.empty() || value == "false" || value == "False") return;
    if ((means.fate == Fate::variable || means.fate == Fate::flag) &&
        has(std::string(means.text.substr(0, means.text.find('='))).c_str()))
      return;
    if ((means.fate == Fate::nodes && out.nodes) || (means.fate == Fate::total && out.total)) return;
    take_option(out, launcher, means, fmt::format("{} of {}", key, path), value);
  };
  use("mixed_precision", "mixed-precision");
  use("num_machines", "num-machines");
  use("num_processes", "num-processes");
  use("gpu_ids", "gpu-ids");
  use("use_cpu", "cpu");
  use("debug", "debug");
  use("enable_cpu_affinity", "enable-cpu-affinity");
  use("num_cpu_threads_per_process", "num-cpu-threads-per-process");
  for (const auto& [key, value] : keys)
    if (key.ends_with("_config") && value != "{}" && !value.empty()) refuse(key, "");
}

std::string accelerates_file(const Outside& outside) {
  std::string folder = outside.environment("HF_HOME");
  if (folder.empty()) folder = outside.environment("HOME") + "/.cache/huggingface";
  return folder + "/accelerate/default_config.yaml";
}

// --- what a rank runs ---

/// The interpreter of the launcher itself: a launcher that is installed in an environment names its own.
std::string interpreter_of(const Words& words, const Found& found, const Outside& outside) {
  constexpr const char* any = "python3";
  if (is_python(words[found.begin])) return words[found.begin];
  for (std::size_t i = 0; i < found.begin; ++i)
    if (is_one_of(environments, base(words[i]))) return any;  // that of the environment
  const std::string path = outside.find(words[found.begin]);
  const auto text = path.empty() ? std::nullopt : outside.read(path);
  if (!text || !text->starts_with("#!")) return any;
  const std::string program(trimmed(first_line(string_view(*text).substr(2))));
  return program.find(' ') == std::string::npos && is_python(program) ? program : any;
}

struct Script {
  Words words;  ///< its name and its arguments
  bool module = false, no_python = false, no_rank = false;
};

/// Options of the launcher, then the script and all that is its own.
Script read_options(const Words& words, std::size_t at, const Launcher& launcher, LauncherCommand& out,
                    std::string& file) {
  Script script;
  for (; at < words.size() && words[at].starts_with('-') && words[at] != "-"; ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    const auto equals = words[at].find('=');
    std::string word = words[at].substr(0, equals), value;
    bool has_value = equals != std::string::npos;
    if (has_value) value = words[at].substr(equals + 1);
    const bool is_short = !word.starts_with("--");
    if (is_short && word.size() > 2 && option_called(launcher, word.substr(1, 1))) {  // -r3
      value = words[at].substr(2);
      has_value = true;
      word.resize(2);
    }
    const Option* option = option_called(launcher, option_name(word));
    if (!option) {
      const bool group =
          launcher.kind == Kind::accelerate && std::ranges::any_of(accelerate_groups, [&](const char* begin) {
            return option_name(word).starts_with(begin);
          });
      refuse_option(launcher, word, group ? in_the_script : "Leave it out, if the ranks do not need it");
    }
    if (option->takes_value && !has_value) {
      if (at + 1 == words.size())
        throw Error(Exit::usage, fmt::format("{}'s option {} has no value", launcher.name, word));
      value = words[++at];
    }
    if (option->fate == Fate::module) script.module = true;
    if (option->fate == Fate::no_python) script.no_python = true;
    if (option->fate == Fate::no_rank) script.no_rank = true;
    if (option->fate == Fate::config) file = value;
    take_option(out, launcher, *option, word, value);
  }
  script.words.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  if (script.words.empty())
    throw Error(Exit::usage, fmt::format("{} has no script", launcher.name), "",
                fmt::format("Write it behind the options of {}?", launcher.name));
  return script;
}

Words command_of(const Script& script, const Launcher& launcher, const std::string& interpreter,
                 std::string& shown) {
  Words out;
  if (!script.no_python) out = {interpreter, "-u"};
  if (!script.no_python && script.module) out.emplace_back("-m");
  const std::size_t name = out.size();
  out.insert(out.end(), script.words.begin(), script.words.end());
  shown = fmt::format("{}", fmt::join(out, " "));
  if (launcher.number.empty() || script.no_rank) return out;
  shown = fmt::format("{} {}=N{}{}",
                      fmt::join(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(name) + 1, " "),
                      launcher.number, out.size() > name + 1 ? " " : "",
                      fmt::join(out.begin() + static_cast<std::ptrdiff_t>(name) + 1, out.end(), " "));
  // The number differs from rank to rank: a shell writes it behind the script's name.
  std::string text = "exec";
  for (std::size_t i = 0; i <= name; ++i) text += fmt::format(" \"${{{}}}\"", i);
  text += fmt::format(" {}=\"$LOCAL_RANK\"", launcher.number);
  const std::string rest = fmt::format(" \"${{@:{}}}\"", name + 1);
  out.insert(out.begin(), {"bash", "-c", text + rest});
  return out;
}

[[noreturn]] void refuse_program(const Words& words, const Found& found) {
  // The program behind its options, where one can be seen.
  std::string program = "PROGRAM ARGUMENT...";
  for (std::size_t i = found.end; i < words.size(); ++i)
    if (!words[i].starts_with('-') &&
        (is_python(words[i]) || words[i].starts_with("./") || words[i].ends_with(".py"))) {
      program =
          fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(), " "));
      if (words[i].ends_with(".py")) program = "python3 " + program;
      break;
    }
  const RefusedProgram& refused = *found.refused;
  const bool mpi = refused.instead == with_mpi;
  const std::string instead = refused.instead.empty() || mpi
                                  ? fmt::format("Write the program alone: --command '{}'{}", program,
                                                mpi ? " --set rank.launch=mpi" : "")
                                  : std::string(refused.instead);
  throw Error(Exit::usage, found.name + " cannot be the program of the ranks", std::string(refused.why),
              instead + "?");
}

/// Commands of a shell's text, roughly: what stands between its operators, without quotes.
std::vector<Words> commands_in(const std::string& text) {
  std::vector<Words> out(1);
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) out.back().push_back(std::exchange(word, ""));
  };
  bool comment = false;
  for (const char c : text) {
    if (c == '\n') comment = false;
    if (comment) continue;
    if (c == '#' && word.empty()) {
      comment = true;
    } else if (string_view(";&|()\n`{}").find(c) != string_view::npos) {
      end_word();
      out.emplace_back();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else if (c != '"' && c != '\'') {
      word += c;
    }
  }
  end_word();
  return out;
}

Found called_in_text(const std::string& text, Words& where) {
  static constexpr std::array leads = {"then", "do", "else", "if", "while", "!"};
  std::string joined = text;  // lines that go on
  for (std::size_t at = 0; (at = joined.find("\\\n", at)) != std::string::npos;) joined.replace(at, 2, " ");
  for (Words words : commands_in(joined)) {
    while (!words.empty() && is_one_of(leads, words.front())) words.erase(words.begin());
    if (const Found found = called_by(words)) {
      where = words;
      return found;
    }
  }
  return {};
}

/// The text of `sh -c TEXT`, or nothing.
const std::string* shell_text(const Words& words) {
  if (words.size() < 3 || !is_one_of(shells, base(words.front()))) return nullptr;
  for (std::size_t i = 1; i + 1 < words.size() && words[i].starts_with('-'); ++i)
    if (!words[i].starts_with("--") && words[i].ends_with('c')) return &words[i + 1];
  return nullptr;
}

/// The script that a shell, or the kernel, runs; "": none.
std::string script_in(const Words& words) {
  if (!is_one_of(shells, base(words.front()))) return words.front();
  const auto first = std::find_if(words.begin() + 1, words.end(),
                                  [](const std::string& word) { return !word.starts_with('-'); });
  return first == words.end() ? "" : *first;
}

bool is_set(const config::Loaded& loaded, const char* key) {
  const auto origin = loaded.origin.find(key);
  return origin != loaded.origin.end() && origin->second != "default";
}

/// Takes `value` for the setting, where nobody has set it; else it must be the same.
void agree(config::Loaded& loaded, const LauncherCommand& from, const char* key, int& setting, int value) {
  if (!is_set(loaded, key)) {
    setting = value;
    loaded.origin[key] = from.launcher;
  } else if (setting != value) {
    throw Error(Exit::usage, fmt::format("the command and {} contradict each other", key),
                fmt::format("{} says {}, and {} is {}", from.launcher, value, key, setting),
                fmt::format("Leave {} out of the command?", from.launcher));
  }
}

void agree_on_size(config::Loaded& loaded, LauncherCommand& from) {
  auto& cluster = loaded.config.cluster;
  if (from.nodes) agree(loaded, from, "cluster.nodes", cluster.nodes, *from.nodes);
  if (from.min_nodes && !is_set(loaded, "supervise.min_nodes"))
    agree(loaded, from, "supervise.min_nodes", loaded.config.supervise.min_nodes, *from.min_nodes);
  if (from.total) {
    if (*from.total % cluster.nodes != 0)
      throw Error(Exit::usage, "the processes cannot be divided among the nodes",
                  fmt::format("{} starts {} processes in all, and the job has {} nodes", from.launcher,
                              *from.total, cluster.nodes),
                  "Write another -N?");
    from.per_node = *from.total / cluster.nodes;
  }
  if (from.per_node_by_default && is_set(loaded, "cluster.ranks_per_node")) return;
  if (*from.per_node == 0 && (from.per_node_by_default || is_set(loaded, "cluster.ranks_per_node"))) return;
  agree(loaded, from, "cluster.ranks_per_node", cluster.ranks_per_node, *from.per_node);
}

std::vector<std::string> lines_for_people(const config::Loaded& loaded, const LauncherCommand& from) {
  const auto& config = loaded.config;
  std::vector<std::string> out;
  const int per_node = config.cluster.ranks_per_node;
  out.push_back(fmt::format("Holdfast takes the place of {}: {} of {} node{} run{} {}", from.launcher,
                            per_node == 0   ? "a rank for each GPU"
                            : per_node == 1 ? "one rank on each"
                                            : fmt::format("{} ranks on each", per_node),
                            config.cluster.nodes, config.cluster.nodes == 1 ? "" : "s",
                            per_node > 1 ? "" : "s", from.shown));
  if (from.per_node_by_default && from.per_node == 1 && per_node == 1)
    out.back() += fmt::format(
        ". {} alone starts one process on each node; for one on each GPU write --nproc-per-node=gpu",
        from.launcher);
  if (!from.environment.empty())
    out.push_back(fmt::format("ranks get, as from {}: {}", from.launcher, fmt::join(from.environment, " ")));
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [option, why] : from.dropped) reasons[why].push_back(option);
  for (const auto& [why, options] : reasons)
    out.push_back(fmt::format("{} of {} {} left out: {}", fmt::join(options, ", "), from.launcher,
                              options.size() == 1 ? "is" : "are", why));
  return out;
}

}  // namespace

Outside this_machine() {
  constexpr std::size_t longest = 64u << 10;
  return {[](const std::string& path) -> std::optional<std::string> {
            std::error_code unknown;
            if (!std::filesystem::is_regular_file(path, unknown) ||
                std::filesystem::file_size(path, unknown) > longest)
              return std::nullopt;
            try {
              return files::read_text(path);
            } catch (const Error&) {
              return std::nullopt;
            }
          },
          [](const std::string& program) -> std::string {
            for (const auto& place : places_in(env::get_or("PATH", ""), program))
              if (::access(place.c_str(), X_OK) == 0) return place;
            return "";
          },
          [](const char* variable) { return env::get_or(variable, ""); }};
}

std::optional<LauncherCommand> launcher_in(const Words& words, const Outside& outside) {
  const Found found = called_by(words);
  if (found.refused) refuse_program(words, found);
  if (!found.launcher) return std::nullopt;
  const Launcher& launcher = *found.launcher;
  LauncherCommand out;
  out.launcher = launcher.name;
  std::string file;
  const Script script = read_options(words, found.end, launcher, out, file);
  if (launcher.kind == Kind::accelerate) {
    const std::string path = file.empty() ? accelerates_file(outside) : file;
    if (const auto text = outside.read(path))
      take_file(out, launcher, path, *text);
    else if (!file.empty())
      throw Error(Exit::usage, "accelerate's file of options cannot be read", path);
  }
  if (!out.per_node && !out.total) {
    out.per_node = launcher.per_node;
    out.per_node_by_default = true;
  }
  // What stands before the launcher stays; `exec` is a word of shells.
  Words before(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(found.begin));
  std::erase_if(before, [](const std::string& word) { return word == "exec" || word == "command"; });
  if (!before.empty() && is_assignment(before.front())) before.insert(before.begin(), "env");
  out.command = command_of(script, launcher, interpreter_of(words, found, outside), out.shown);
  out.command.insert(out.command.begin(), before.begin(), before.end());
  return out;
}

std::string launcher_in_script(const std::string& text) {
  Words where;
  const Found found = called_in_text(text, where);
  return found ? found.name : "";
}

std::vector<std::string> take_launcher(config::Loaded& loaded, const Outside& outside) {
  auto& config = loaded.config;
  const Words words = config.rank.command;
  if (words.empty() || config::own_trainer(config.rank)) return {};
  Outside where_ranks_run = outside;
  if (!config.container.image.empty()) where_ranks_run.find = [](const std::string&) { return ""; };
  if (auto from = launcher_in(words, where_ranks_run)) {
    agree_on_size(loaded, *from);
    config.rank.command = from->command;
    auto& own = config.rank.environment;
    std::erase_if(from->environment, [&](const std::string& entry) {
      const std::string name = entry.substr(0, entry.find('=') + 1);
      return std::ranges::any_of(own, [&](const std::string& e) { return e.starts_with(name); });
    });
    own.insert(own.end(), from->environment.begin(), from->environment.end());
    return lines_for_people(loaded, *from);
  }
  const bool one = config.cluster.ranks_per_node == 1 && is_set(loaded, "cluster.ranks_per_node");
  if (const std::string* text = shell_text(words)) {
    Words where;
    const Found found = called_in_text(*text, where);
    if (!found) return {};
    if (found.refused) refuse_program(where, found);
    if (!one)
      throw Error(
          Exit::usage,
          fmt::format("the shell of each rank would start {}, which starts ranks of its own", found.name),
          "Holdfast takes the place of a launcher only where no shell stands around it",
          fmt::format(
              "Write in the shell's text what {} starts (exec python3 SCRIPT), or for one {} on each node "
              "--set cluster.ranks_per_node=1?",
              found.name, found.name));
    return {};
  }
  const auto script = outside.read(script_in(words));
  const std::string hidden = script && (script->starts_with("#!") || is_one_of(shells, base(words.front())))
                                 ? launcher_in_script(*script)
                                 : "";
  if (hidden.empty() || one) return {};
  return {fmt::format(
      "{} has a line that starts {}. Under Holdfast every rank would start ranks of its own there: let the "
      "script end with exec python3 SCRIPT instead",
      script_in(words), hidden)};
}

}  // namespace holdfast::launcher
