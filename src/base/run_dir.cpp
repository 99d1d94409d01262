#include "src/base/run_dir.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"

namespace holdfast {
namespace {

std::uint64_t hash_of(const std::filesystem::path& run_dir) {
  const std::string name = std::filesystem::absolute(run_dir).lexically_normal().string();
  return hash_name(name.data(), name.size());
}

/// All that the names of a run's records have in common.
std::string flight_prefix(const std::filesystem::path& run_dir) {
  return fmt::format("holdfast-flight.{:016x}.", hash_of(run_dir));
}

/// Takes a number from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(as_size(end - text.data()));
  return number;
}

}  // namespace

std::filesystem::path local_level_folder(const std::filesystem::path& local,
                                         const std::filesystem::path& run_dir) {
  return local / fmt::format("holdfast-state-{}.{:016x}", ::getuid(), hash_of(run_dir));
}

std::string local_level_file(int rank, bool copy) {
  return fmt::format("rank-{:05}.{}", rank, copy ? "copy" : "own");
}

std::filesystem::path flight_record(const std::filesystem::path& run_dir, int attempt, int rank) {
  return fmt::format("/dev/shm/{}{}.{}", flight_prefix(run_dir), attempt, rank);
}

std::optional<int> attempt_of_flight_record(const std::filesystem::path& run_dir, std::string_view name) {
  const std::string prefix = flight_prefix(run_dir);
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const auto attempt = take_number(name);
  if (!attempt || !name.starts_with('.')) return std::nullopt;
  name.remove_prefix(1);
  return take_number(name) && name.empty() ? attempt : std::nullopt;
}

}  // namespace holdfast
