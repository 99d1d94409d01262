#pragma once
// A bundle (scripts/bundle.sh) carries libraries and Open MPI with it. Debian's Open MPI looks for its parts
// where the package put them, unless it is told where they are now.
#include <filesystem>
#include <optional>

namespace holdfast {

/// The absolute path of this program. In a bundle, of what starts it (src/bundle); empty: it is not known.
std::filesystem::path program_path();

/// The folder that holds bin/ and lib/, when this program lies in a bundle.
std::optional<std::filesystem::path> bundle_root();

/// The folder of Holdfast's Python package, to stand in PYTHONPATH: installed, or in the source tree around a
/// build. Empty: nowhere.
std::filesystem::path python_folder();

/// In a bundle: MPI and PMIx in this program find their parts in it, and there alone, whatever the machine,
/// its configuration files or the user's environment know of others. Before MPI is initialised, and before
/// there are threads. Programs of another MPI must not inherit this.
void use_mpi_of_bundle();

}  // namespace holdfast
