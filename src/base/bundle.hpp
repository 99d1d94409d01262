#pragma once
// A bundle (scripts/bundle.sh) carries libraries and Open MPI with it. Debian's Open MPI looks for its parts
// where the package put them, unless it is told where they are now.
#include <filesystem>
#include <optional>

namespace holdfast {

/// The folder that holds bin/ and lib/, when this program lies in a bundle.
std::optional<std::filesystem::path> bundle_root();

/// In a bundle: says where programs, libraries and Open MPI are, in the environment of this program and of
/// all that it starts. Before MPI is initialised, and before there are threads.
void announce_bundle();

}  // namespace holdfast
