#include "launcher/supervise/valid_events.hpp"

#include <algorithm>
#include <cstdint>

namespace holdfast::launcher {

using nlohmann::json;

json last_read(const std::vector<json>& events) {
  if (events.empty()) return {{"term", 0}, {"seq", 0}};
  return {{"term", events.back().value("term", 0)}, {"seq", events.back().value("seq", 0)}};
}

std::vector<json> valid_events(std::vector<std::vector<json>> files) {
  int term = INT32_MAX, seq = INT32_MAX;  // the bound that the leader after it has set
  std::vector<std::vector<json>> kept;
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const int own = file->empty() ? 0 : file->front().value("term", 0);
    if (file->empty() || own > term) continue;  // it never led, or the next leader had read none of it
    if (own == term) std::erase_if(*file, [&](const json& e) { return e.value("seq", 0) > seq; });
    if (file->empty()) continue;
    const json& first = file->front();
    const auto after = first.find("after");
    if (after != first.end() && after->is_object()) {
      term = after->value("term", 0);
      seq = after->value("seq", 0);
    } else {
      term = seq = INT32_MAX;
    }
    kept.push_back(std::move(*file));
  }
  std::vector<json> out;
  for (auto file = kept.rbegin(); file != kept.rend(); ++file)
    std::move(file->begin(), file->end(), std::back_inserter(out));
  return out;
}

}  // namespace holdfast::launcher
