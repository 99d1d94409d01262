#pragma once
// A bundle (scripts/bundle.sh) carries libraries and Open MPI with it. Debian's Open MPI looks for its parts
// where the package put them, unless it is told where they are now.
#include <filesystem>
#include <optional>
#include <vector>

namespace holdfast {

/// The absolute path of this program. In a bundle, of what starts it (src/bundle); empty: it is not known.
std::filesystem::path program_path();

/// The folder that holds bin/ and lib/, when this program lies in a bundle.
std::optional<std::filesystem::path> bundle_root();

/// The folders above a program, its own first, among which a program of a build finds its source tree. They
/// end before the first one in which others may put something (/tmp): who can rename the program's own
/// folders could replace the program as well.
std::vector<std::filesystem::path> own_folders_above(const std::filesystem::path& program);

/// The folder of Holdfast's Python package, to stand in PYTHONPATH: installed, or in the source tree around a
/// build. Empty: nowhere.
std::filesystem::path python_folder();

/// A backend that holdfast-train loads where there is a GPU.
struct CudaModule {
  int release = 0;  ///< the major release of CUDA that it was built with; 0: not known
  std::filesystem::path file;
};

/// The backends of a program, the newest release first: libholdfast-cuda-RELEASE.so in cuda_folders(). Throws
/// Error (transient) where a folder cannot be listed.
std::vector<CudaModule> cuda_modules(const std::filesystem::path& program);
/// The program's own folder, and ../lib/holdfast from there.
std::vector<std::filesystem::path> cuda_folders(const std::filesystem::path& program);

/// In a bundle: MPI and PMIx in this program find their parts in it, and there alone, whatever the machine,
/// its configuration files or the user's environment know of others. Before MPI is initialised, and before
/// there are threads. Programs of another MPI must not inherit this.
void use_mpi_of_bundle();

}  // namespace holdfast
