#include "src/train/restore/earlier_settings.hpp"

#include <fmt/format.h>

#include <charconv>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::train {

std::optional<config::RunConfig> settings_of_checkpoint(const std::filesystem::path& checkpoint, int term,
                                                        const Setup& setup) {
  std::error_code unknown;
  // A checkpoint lies in RUN/checkpoints/step-NNNNNNNN.
  const RunDir run{std::filesystem::weakly_canonical(checkpoint, unknown).parent_path().parent_path()};
  if (unknown) return std::nullopt;
  int newest = 0;  // of the jobs that began before it was written, by their first terms
  for (const std::string& name : files::list(run.configs())) {
    int first = 0;
    std::from_chars(name.data(), name.data() + name.size(), first);
    if (first <= term) newest = std::max(newest, first);
  }
  try {
    if (newest > 0) return config::load(run.configs() / fmt::format("{:04}.toml", newest)).config;
    if (std::filesystem::equivalent(run.path, setup.dir.path, unknown)) return setup.earlier;
    if (files::exists_or_fail(run.config())) return config::load(run.config()).config;
  } catch (const Error&) {
  }
  return std::nullopt;
}

}  // namespace holdfast::train
