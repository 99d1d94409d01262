#include "checkpoint/index/best.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr const char* loss_key = "held_out_loss";

/// Newest first.
std::vector<std::int64_t> marked_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const std::string& text : entries_of(checkpoints))
    if (const Name name = parse_name(text); name.kind == Name::Kind::best) steps.push_back(name.step);
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void unmark(const fs::path& checkpoints, std::int64_t step) {
  const fs::path path = best_path(checkpoints, step);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw system_error("cannot remove " + path.string(), errno);
}

std::optional<double> loss_in(const fs::path& mark) {
  try {
    const auto json = json_from(files::read_text(mark));
    if (json.is_object()) return typed<double>(json, loss_key);
  } catch (const Error&) {  // it is just removed, or cannot be read now
  }
  return std::nullopt;
}

}  // namespace

std::optional<Best> best_of(const fs::path& checkpoints) {
  for (const std::int64_t step : marked_steps(checkpoints))
    if (files::exists_or_fail(committed_path(checkpoints, step)))
      return Best{step, loss_in(best_path(checkpoints, step))};
  return std::nullopt;
}

void mark_best(const fs::path& checkpoints, std::int64_t step, double held_out_loss) {
  files::replace_atomically(best_path(checkpoints, step),
                            nlohmann::json{{"schema_version", 1}, {loss_key, held_out_loss}}.dump() + "\n");
}

void unmark_older(const fs::path& checkpoints) {
  const auto best = best_of(checkpoints);
  if (!best) return;
  for (const std::int64_t step : marked_steps(checkpoints))
    if (step < best->step) unmark(checkpoints, step);
}

void unmark_later(const fs::path& checkpoints, std::int64_t step) {
  for (const std::int64_t marked : marked_steps(checkpoints))
    if (marked > step) unmark(checkpoints, marked);
}

}  // namespace holdfast::checkpoint
