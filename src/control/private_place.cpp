#include "src/control/private_place.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::control {
namespace fs = std::filesystem;

namespace {

constexpr int most_names = 64;           // each job of the run shows others one of them
constexpr std::size_t digits_kept = 24;  // 96 bits; longer ones would leave no room in the path of a socket

fs::path path_called(const PrivatePlace& place, const Key& secret, int number) {
  const std::string run = fs::absolute(place.run.path).lexically_normal().string();
  const Key digits = mac(secret, fmt::format("name {} of {} for {}", number, place.stem, run));
  return place.parent / (place.stem + to_hex(digits).substr(0, digits_kept));
}

std::string local_level_stem() { return fmt::format("holdfast-state-{}.", ::getuid()); }

}  // namespace

std::string scratch_stem() { return fmt::format("holdfast-{}-", ::getuid()); }

PrivatePlace scratch_place(const RunDir& run) { return {run, node_memory, scratch_stem()}; }

PrivatePlace local_level_place(const RunDir& run, const fs::path& local) {
  return {run, local == "auto" ? fs::path(node_memory) : local, local_level_stem()};
}

bool is_called_local_level(const fs::path& folder) {
  return folder.is_absolute() && folder.filename().string().starts_with(local_level_stem());
}

std::optional<fs::path> find_private(const PrivatePlace& place, const Key& secret) {
  for (int number = 0; number < most_names; ++number)
    if (fs::path path = path_called(place, secret, number); files::is_private_folder(path)) return path;
  return std::nullopt;
}

fs::path make_private(const PrivatePlace& place, const Key& secret) {
  if (auto found = find_private(place, secret)) return *found;
  for (int number = 0;; ++number) {
    const fs::path path = path_called(place, secret, number);
    if (number + 1 < most_names && files::look_at_entry(path).presence == files::Presence::there &&
        !files::is_private_folder(path))
      continue;
    try {
      files::make_private_folder(path);
      return path;
    } catch (const Error&) {
      // Between the two, another user may have made it.
      if (number + 1 == most_names || files::look_at_entry(path).presence != files::Presence::there) throw;
    }
  }
}

}  // namespace holdfast::control
