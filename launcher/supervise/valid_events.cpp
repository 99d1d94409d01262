#include "launcher/supervise/valid_events.hpp"

#include <algorithm>
#include <cstdint>

namespace holdfast::launcher {

events::LastRead last_read(const std::vector<LogEntry>& entries) {
  if (entries.empty()) return {};
  return {entries.back().envelope.term, entries.back().envelope.seq};
}

std::vector<LogEntry> valid_events(std::vector<std::vector<LogEntry>> files) {
  int term = INT32_MAX, seq = INT32_MAX;  // the bound that the leader after it has set
  std::vector<std::vector<LogEntry>> kept;
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    const int own = file->empty() ? 0 : file->front().envelope.term;
    if (file->empty() || own > term) continue;  // it never led, or the next leader had read none of it
    if (own == term) std::erase_if(*file, [&](const LogEntry& e) { return e.envelope.seq > seq; });
    if (file->empty()) continue;
    const auto* first = std::get_if<events::LeaderElected>(&file->front().event);
    if (first && first->after) {
      term = first->after->term;
      seq = first->after->seq;
    } else {
      term = seq = INT32_MAX;
    }
    kept.push_back(std::move(*file));
  }
  std::vector<LogEntry> out;
  for (auto file = kept.rbegin(); file != kept.rend(); ++file)
    std::move(file->begin(), file->end(), std::back_inserter(out));
  return out;
}

}  // namespace holdfast::launcher
