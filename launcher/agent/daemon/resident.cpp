#include "launcher/agent/daemon/resident.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "src/base/bundle.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds loader_limit{60};
constexpr double max_part = 0.25;  // of the free memory of the file system

void copy_checked(const fs::path& from, const fs::path& to, unsigned mode) {
  const std::string bytes = files::read_text(from, {.limit = files::no_limit});
  fs::create_directories(to.parent_path());
  const fs::path aside = to.string() + ".new";
  {
    const files::Fd file = files::open(aside, O_WRONLY | O_CREAT | O_TRUNC, mode);
    files::append_all(file.get(), bytes, aside);
  }
  if (files::read_text(aside, {.limit = files::no_limit}) != bytes)
    throw Error(Exit::runtime,
                "the copy of " + from.string() + " in " + to.parent_path().string() + " differs from it");
  fs::rename(aside, to);
}

/// What the loader would load for a program or a library, by the loader's own word.
std::vector<fs::path> libraries_of(const fs::path& object) {
  Command command;
  command.argv = {"/lib64/ld-linux-x86-64.so.2", "--list", object.string()};
  const Finished done = run(command, loader_limit);
  std::vector<fs::path> out;
  std::istringstream lines(done.out);
  for (std::string line; std::getline(lines, line);)
    if (const auto at = line.find("=> /"); at != std::string::npos)
      out.emplace_back(line.substr(at + 3, line.rfind(" (") - at - 3));
  return out;
}

/// All of a bundle but what no rank and no agent needs: MPI, PMIx and UCX look for plug-ins in it.
std::vector<fs::path> parts_of_bundle(const fs::path& root) {
  std::vector<fs::path> parts;
  for (fs::recursive_directory_iterator at(root), end; at != end; ++at) {
    const fs::path below = at->path().lexically_relative(root);
    if (below == "tests" || below == "share/holdfast/configs" || below == "share/holdfast/python")
      at.disable_recursion_pending();
    else if (at->is_regular_file() && below.filename() != "holdfast-tool")
      parts.push_back(below);
  }
  return parts;
}

/// Files of an installation that ranks and agents need, by their path below its root.
std::vector<fs::path> parts_of(const fs::path& root, const fs::path& program) {
  if (bundle_root()) return parts_of_bundle(root);
  std::vector<fs::path> parts = {program.lexically_relative(root)};
  const auto add = [&](const fs::path& file) {
    const fs::path below = file.lexically_normal().lexically_relative(root);
    if (below.empty() || *below.begin() == "..") {
      if (!files::on_node(file)) log::warn("{} stays on shared storage", file.string());
    } else if (std::find(parts.begin(), parts.end(), below) == parts.end()) {
      parts.push_back(below);
    }
  };
  const fs::path trainer = find_program("holdfast-train");
  add(trainer);
  add(find_program(pmix_program));
  for (const CudaModule& module : cuda_modules(trainer)) add(module.file);
  for (std::size_t k = 0; k < parts.size(); ++k)
    for (const auto& library : libraries_of(root / parts[k])) add(library);
  return parts;
}

/// "": they fit.
std::string why_not(const fs::path& folder, const fs::path& root, const std::vector<fs::path>& parts) {
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0) return "its file system does not answer";
  if (room.f_flag & ST_NOEXEC) return "programs cannot be executed there";
  double bytes = 0;
  for (const auto& part : parts) bytes += static_cast<double>(fs::file_size(root / part));
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  return bytes <= max_part * free ? "" : size_text(bytes) + " of " + size_text(free) + " are too much";
}

}  // namespace

fs::path make_resident(const Scratch& scratch, const RunDir& run) {
  const fs::path program = this_program(), root = program.parent_path().parent_path();
  if (root == scratch.programs()) return program;
  for (const auto& file : {run.config(), run.model(), run.cluster(), run.nodes(), run.secret()})
    if (files::is_there(file)) copy_checked(file, scratch.settings().path / file.filename(), 0600);
  if (files::on_node(program)) return program;
  try {
    const auto parts = parts_of(root, program);
    if (const auto why = why_not(scratch.folder, root, parts); !why.empty()) {
      log::warn("programs run from shared storage and will wait for it: no copy in {} ({})",
                scratch.folder.string(), why);
      return program;
    }
    for (const auto& part : parts) copy_checked(root / part, scratch.programs() / part, 0700);
    log::info("programs and libraries run from {} copies in {}", parts.size(), scratch.programs().string());
  } catch (const std::exception& error) {
    log::warn("programs run from shared storage and will wait for it: {}", error.what());
    return program;
  }
  return scratch.programs() / program.lexically_relative(root);
}

}  // namespace holdfast::launcher
