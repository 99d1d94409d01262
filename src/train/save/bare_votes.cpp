#include "src/train/save/bare_votes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::train {
namespace {

constexpr std::string_view prefix = "vote-";  // "vote-00003"; "vote-00003.tmp" while it is written
constexpr Millis shortest_pause{5}, longest_pause{200};

/// The rank whose vote the file of this name is, or nothing.
std::optional<int> rank_of(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return rank;
}

}  // namespace

void cast_vote(const std::filesystem::path& temporary, int rank, bool ok, const std::string& payload) {
  std::error_code failure;
  std::filesystem::create_directories(temporary, failure);  // what is wrong with it, the write says
  files::replace_atomically(temporary / fmt::format("{}{:05}", prefix, rank), (ok ? "y" : "n") + payload);
}

void collect_votes(const std::filesystem::path& temporary, checkpoint::Commit& commit,
                   const Deadline& deadline, const std::atomic<bool>& ending) {
  for (Millis pause = shortest_pause;; pause = std::min(2 * pause, longest_pause)) {
    // By the folder's list: asking for a name that is not there yet may be answered from memory for a long
    // time on network file systems.
    for (const std::string& name : files::list(temporary)) {
      const auto rank = rank_of(name);
      if (!rank) continue;
      const std::string vote = files::read_text(temporary / name);
      std::filesystem::remove(temporary / name);
      commit.add(*rank, vote.starts_with('y'), vote.empty() ? vote : vote.substr(1));
      pause = shortest_pause;
    }
    if (commit.complete() || commit.failed() || deadline.passed() || ending) return;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace holdfast::train
