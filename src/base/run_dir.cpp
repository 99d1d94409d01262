#include "src/base/run_dir.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"

namespace holdfast {
namespace {

const std::filesystem::path node_memory = "/dev/shm";

std::uint64_t hash_of(const std::filesystem::path& run_dir) {
  const std::string name = std::filesystem::absolute(run_dir).lexically_normal().string();
  return hash_name(name.data(), name.size());
}

constexpr std::string_view flight_prefix = "flight.";

/// Takes a number from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(as_size(end - text.data()));
  return number;
}

}  // namespace

std::filesystem::path node_folder(const std::filesystem::path& run_dir) {
  return node_memory / fmt::format("holdfast-{}-{:016x}", ::getuid(), hash_of(run_dir));
}

std::filesystem::path local_level_folder(const std::filesystem::path& local,
                                         const std::filesystem::path& run_dir) {
  return (local == "auto" ? node_memory : local) /
         fmt::format("holdfast-state-{}.{:016x}", ::getuid(), hash_of(run_dir));
}

std::string local_level_file(int rank, bool copy) {
  return fmt::format("rank-{:05}.{}", rank, copy ? "copy" : "own");
}

std::filesystem::path flight_record(const std::filesystem::path& run_dir, int attempt, int rank) {
  return node_folder(run_dir) / fmt::format("{}{}.{}", flight_prefix, attempt, rank);
}

std::optional<int> attempt_of_flight_record(std::string_view name) {
  if (!name.starts_with(flight_prefix)) return std::nullopt;
  name.remove_prefix(flight_prefix.size());
  const auto attempt = take_number(name);
  if (!attempt || !name.starts_with('.')) return std::nullopt;
  name.remove_prefix(1);
  return take_number(name) && name.empty() ? attempt : std::nullopt;
}

}  // namespace holdfast
