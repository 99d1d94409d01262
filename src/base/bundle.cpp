#include "src/base/bundle.hpp"

#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "src/base/env.hpp"
#include "src/base/files.hpp"

namespace holdfast {
namespace fs = std::filesystem;

fs::path program_path() {
  std::error_code none;
  fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (!program.empty()) return program;
  const auto* started_as = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // there is no /proc
  return started_as ? fs::absolute(started_as, none) : fs::path();
}

std::optional<fs::path> bundle_root() {
  const fs::path root = program_path().parent_path().parent_path();
  std::error_code none;
  if (!fs::exists(root / "share/holdfast/bundle", none)) return std::nullopt;
  return root;
}

std::vector<fs::path> own_folders_above(const fs::path& program) {
  std::vector<fs::path> folders;
  struct stat facts {};
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    const bool seen = ::stat(at.c_str(), &facts) == 0;
    const mode_t others = seen && (facts.st_mode & S_ISVTX) != 0 ? S_IWGRP | S_IWOTH : S_IWOTH;
    if (!seen || (facts.st_mode & others) != 0) break;
    folders.push_back(at);
  }
  return folders;
}

fs::path python_folder() {
  const fs::path program = program_path();
  std::vector<fs::path> places = {program.parent_path() / "../share/holdfast/python"};
  for (const fs::path& folder : own_folders_above(program)) places.push_back(folder / "client/python");
  std::error_code none;
  for (const fs::path& place : places)
    if (fs::exists(place / "holdfast/__init__.py", none)) return place.lexically_normal();
  return {};
}

std::vector<fs::path> cuda_folders(const fs::path& program) {
  const fs::path folder = program.parent_path();
  return {folder, (folder / "../lib/holdfast").lexically_normal()};
}

std::vector<CudaModule> cuda_modules(const fs::path& program) {
  constexpr std::string_view before = "libholdfast-cuda-", after = ".so";
  std::vector<CudaModule> modules;
  for (const fs::path& folder : cuda_folders(program)) {
    for (const std::string& name : files::list_or_fail(folder)) {
      if (!name.starts_with(before) || !name.ends_with(after)) continue;
      CudaModule module{.file = folder / name};
      const char* const end = name.data() + name.size() - after.size();
      const auto [stop, error] = std::from_chars(name.data() + before.size(), end, module.release);
      if (stop == end && error == std::errc()) modules.push_back(module);
    }
  }
  std::ranges::stable_sort(modules, std::ranges::greater{}, &CudaModule::release);
  return modules;
}

void use_mpi_of_bundle() {
  const auto root = bundle_root();
  if (!root) return;
  const fs::path lib = *root / "lib/x86_64-linux-gnu";
  env::set("OPAL_PREFIX", root->string());
  env::set("OMPI_MCA_mca_base_component_path", (lib / "openmpi/lib/openmpi3").string());
  env::set("PMIX_PREFIX", (lib / "pmix2").string());
  env::set("PMIX_PKGLIBDIR", (lib / "pmix2/lib/pmix").string());  // Debian's does not follow from the prefix
  env::set("OMPI_MCA_ess_singleton_isolated", "1");  // a rank by itself would start a daemon of mpirun
  // Plug-ins that need what the machine does not have (verbs, libnl) are left out without a word.
  if (const char* name = "OMPI_MCA_mca_base_component_show_load_errors"; !env::get(name)) env::set(name, "0");
  // The settings of other versions are in files of the machine and of the user.
  env::set("OMPI_MCA_mca_base_param_files", "none");
  env::set("PMIX_MCA_mca_base_param_files", "none");
}

}  // namespace holdfast
