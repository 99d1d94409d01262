// A row of the tables of options says which names an option has, whether it takes a value, and what becomes
// of it; launcher_options.cpp reads them. The other tables tell launcher_call.cpp and other_launchers.cpp by
// which words a command is a launcher, is refused, or only runs another program. A new option needs a row in
// the table of its launcher and, where the Fate has a text, that text: a variable, a value, a reason, or what
// to write instead.
#include "launcher/job/launcher_table.hpp"

#include <algorithm>
#include <array>

#include "slurm/tools.hpp"

namespace holdfast::launcher::others {
namespace {

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

constexpr string_view of_slurm =
    "its ranks would be steps or jobs of SLURM, of which Holdfast knows nothing; Holdfast itself starts a "
    "rank for each "
    "GPU of each node";
constexpr string_view of_mpi =
    "each rank would start an MPI job of its own; Holdfast's agents start the ranks, and serve PMIx to them";
constexpr string_view of_itself =
    "it starts ranks of its own, and under Holdfast every rank would start them";
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

template <class Names>
bool is_one_of(const Names& names, const std::string& word) {
  return std::ranges::find(names, string_view(word)) != std::end(names);
}

}  // namespace

const string_view in_the_script =
    "accelerate passes it to the script by variables of its own, which differ from version to version. "
    "Choose it in the "
    "script (Accelerator(fsdp_plugin=..., deepspeed_plugin=...)), or set the variables in rank.environment";

const Launcher& launcher_of(Kind kind) {
  static const std::array all = {
      Launcher{Kind::torchrun, "torchrun", torchrun_options, true, 1, ""},
      Launcher{Kind::torch_launch, "torch.distributed.launch", torchrun_options, true, 1, "--local-rank"},
      Launcher{Kind::accelerate, "accelerate launch", accelerate_options, false, 0, ""},
      Launcher{Kind::deepspeed, "deepspeed", deepspeed_options, true, 0, "--local_rank"},
  };
  return *std::ranges::find(all, kind, &Launcher::kind);
}

std::span<const Spelling> spellings() {
  static constexpr std::array all = {
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
  return all;
}

const std::vector<RefusedProgram>& refused_programs() {
  static const auto all = [] {
    std::vector<RefusedProgram> out(other_refused.begin(), other_refused.end());
    for (const string_view tool : slurm::tools_that_launch) out.push_back({tool, of_slurm});
    return out;
  }();
  return all;
}

bool needs_many_variables(const std::string& option) {
  return std::ranges::any_of(accelerate_groups, [&](const char* begin) { return option.starts_with(begin); });
}
bool is_wrapper(const std::string& program) { return is_one_of(wrappers, program); }
bool chooses_environment(const std::string& program) { return is_one_of(environments, program); }
bool takes_name(const std::string& option) { return is_one_of(wrapper_values, option); }
bool is_shell(const std::string& program) { return is_one_of(shells, program); }

}  // namespace holdfast::launcher::others
