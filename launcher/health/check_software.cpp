#include "launcher/health/check_software.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "slurm/cluster_cli.hpp"
#include "slurm/replies.hpp"
#include "slurm/site.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr Millis tool_limit{3000};

/// The first of these libraries that can be loaded; "": none.
std::string load_any(const std::vector<const char*>& names) {
  for (const char* name : names)
    if (void* handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL); handle != nullptr) {
      ::dlclose(handle);
      return name;
    }
  return {};
}

}  // namespace

std::vector<Finding> check_slurm() {
  std::vector<Finding> out;
  try {
    slurm::ClusterCli cluster;
    const std::string version = cluster.version(tool_limit), warning = slurm::version_warning(version);
    out.push_back({"slurm.version", warning.empty() ? Fitness::ok : Fitness::warning,
                   "SLURM " + version + (warning.empty() ? "" : ": " + warning),
                   warning.empty() ? "" : "Try a short job first"});
  } catch (const Error& error) {
    return {{"slurm.version", Fitness::unknown, error.problem() + " (" + error.why() + ")", ""}};
  }
  try {
    const auto plugins = slurm::mpi_plugins(tool_limit);
    const bool pmix = std::any_of(plugins.begin(), plugins.end(),
                                  [](const auto& name) { return name.starts_with("pmix"); });
    out.push_back(
        {"slurm.mpi", Fitness::ok,
         fmt::format(
             "{}{}", fmt::join(plugins, ", "),
             pmix ? ""
                  : "; no pmix: Holdfast needs none, but MPI programs without it cannot be started as steps"),
         ""});
  } catch (const Error& error) {
    out.push_back({"slurm.mpi", Fitness::unknown, error.problem() + " (" + error.why() + ")", ""});
  }
  return out;
}

std::vector<Finding> check_mpi() {
  Command command;
  command.argv = {"mpirun", "--version"};
  try {
    const auto done = run(command, tool_limit);
    const std::string line(first_line(done.out));
    if (done.timed_out || done.status != 0 || line.empty())
      return {{"mpi.version", Fitness::warning, "mpirun does not report its version",
               "Is its installation complete?"}};
    return {{"mpi.version", Fitness::ok, line, ""}};
  } catch (const Error& error) {
    return {
        {"mpi.version", Fitness::ok, "there is no mpirun in PATH; agents start MPI ranks without it", ""}};
  }
}

std::vector<Finding> check_libraries(const Expected& expected) {
  struct Need {
    const char* check;
    const char* what;
    std::vector<const char*> names;
    Fitness missing;  ///< on a node with GPUs
  };
  const std::vector<Need> needs = {
      {"cuda.driver", "CUDA's driver library", {"libcuda.so.1"}, Fitness::critical},
      {"cuda.blas", "cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, Fitness::warning},
      {"cuda.dnn", "cuDNN", {"libcudnn.so.9", "libcudnn.so.8"}, Fitness::warning},
      {"cuda.nccl", "NCCL", {"libnccl.so.2"}, Fitness::warning},
      {"ucx", "UCX", {"libucp.so.0"}, Fitness::unknown}};
  std::vector<Finding> out;
  for (const auto& need : needs) {
    const bool of_gpus = std::string(need.check) != "ucx";
    if (const auto name = load_any(need.names); !name.empty())
      out.push_back({need.check, Fitness::ok, name, ""});
    else
      out.push_back(
          {need.check, expected.gpus() && of_gpus ? need.missing : Fitness::unknown,
           std::string(need.what) + " cannot be loaded",
           expected.gpus() && of_gpus ? "Load the site's module, or set LD_LIBRARY_PATH for the job" : ""});
  }
  return out;
}

}  // namespace holdfast::launcher
