#include "launcher/agent/mover/seals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "src/base/files.hpp"

namespace holdfast::launcher {

namespace fs = std::filesystem;

std::optional<Seal> read_seal(const fs::path& generation, const char* name) {
  const files::Fd fd = files::try_open(generation / name, O_RDONLY | O_NOFOLLOW);
  if (!fd) return std::nullopt;
  std::string text(hfc_seal_bytes, '\0');
  return ::pread(fd.get(), text.data(), text.size(), 0) > 0 ? snapshot::seal_of(text) : std::nullopt;
}

Generations read_generations(const fs::path& folder) {
  return {read_seal(folder / "0"), read_seal(folder / "1")};
}

int generation_to_replace(const Generations& known, int attempt, std::int64_t base_step, int base_attempt) {
  const auto worth = [&](const std::optional<Seal>& seal) {
    if (!seal) return std::tuple(0, 0, std::int64_t{0});
    const int kind = seal->attempt == attempt ? 3 : seal->is(base_step, base_attempt) ? 2 : 1;
    return std::tuple(kind, seal->attempt, seal->step);
  };
  return worth(known[0]) <= worth(known[1]) ? 0 : 1;
}

std::vector<control::SealedState> sealed_states(const fs::path& folder) {
  std::vector<control::SealedState> out;
  for (const auto& name : files::list(folder))
    if (const auto of = folder_called(name))
      for (const auto& seal : read_generations(folder / name))
        if (seal) out.push_back({of->first, seal->step, seal->attempt, seal->world, of->second});
  return out;
}

}  // namespace holdfast::launcher
