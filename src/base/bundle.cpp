#include "src/base/bundle.hpp"

#include <sys/auxv.h>

#include <vector>

#include "src/base/env.hpp"

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

fs::path python_folder() {
  const fs::path program = program_path();
  std::vector<fs::path> places = {program.parent_path() / "../share/holdfast/python"};
  for (fs::path at = program.parent_path(); at.has_relative_path(); at = at.parent_path())
    places.push_back(at / "client/python");
  std::error_code none;
  for (const fs::path& place : places)
    if (fs::exists(place / "holdfast/__init__.py", none)) return place.lexically_normal();
  return {};
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
