#include "src/base/run_dir.hpp"

#include <fmt/core.h>

#include "src/base/digest.hpp"

namespace holdfast {

std::filesystem::path flight_record(const std::filesystem::path& run_dir, int attempt, int rank) {
  const std::string name = std::filesystem::absolute(run_dir).lexically_normal().string();
  return fmt::format("/dev/shm/holdfast-flight.{:016x}.{}.{}", hash_name(name.data(), name.size()), attempt,
                     rank);
}

}  // namespace holdfast
