#include "tests/cuda/sim/race_check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::cuda::sim {
namespace {

std::string race(const std::string& earlier, const char* did, const RaceCheck::Actor& actor, const char* does,
                 const std::byte* begin, const std::byte* end) {
  return fmt::format("race: {} {} and {} {} the bytes {} to {}, and nothing orders them", earlier, did,
                     *actor.name, does, static_cast<const void*>(begin), static_cast<const void*>(end));
}

}  // namespace

std::optional<std::string> RaceCheck::touch(const Actor& actor, const std::vector<Access>& accesses) {
  for (const Access& access : accesses) {
    if (access.bytes <= 0) continue;
    const auto* begin = static_cast<const std::byte*>(access.data);
    auto found =
        access.writes ? write(actor, begin, begin + access.bytes) : read(actor, begin, begin + access.bytes);
    if (found) return found;
  }
  return std::nullopt;
}

void RaceCheck::forget(const void* data, std::int64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  split(begin), split(begin + bytes);
  segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(begin + bytes));
}

/// Afterwards no segment lies on both sides of `at`.
void RaceCheck::split(const std::byte* at) {
  auto next = segments_.lower_bound(at);
  if (next == segments_.begin()) return;
  auto& [begin, segment] = *std::prev(next);
  if (segment.end <= at) return;
  Segment rest = segment;
  segment.end = at;
  segments_.emplace_hint(next, at, std::move(rest));
}

std::optional<std::string> RaceCheck::read(const Actor& actor, const std::byte* begin, const std::byte* end) {
  split(begin), split(end);
  const Mark mark{actor.epoch, actor.name};
  const std::byte* at = begin;
  for (auto it = segments_.lower_bound(begin); at < end; ++it) {
    if (it == segments_.end() || it->first > at) {  // never touched before
      const std::byte* until = it == segments_.end() ? end : std::min(it->first, end);
      it = segments_.emplace_hint(it, at, Segment{until, {}, {mark}});
      at = until;
      continue;
    }
    Segment& segment = it->second;
    at = segment.end;
    if (!actor.clock->knows(segment.write.epoch))
      return race(*segment.write.name, "writes", actor, "reads", it->first, segment.end);
    std::erase_if(segment.reads, [&](const Mark& old) { return actor.clock->knows(old.epoch); });
    segment.reads.push_back(mark);
  }
  return std::nullopt;
}

std::optional<std::string> RaceCheck::write(const Actor& actor, const std::byte* begin,
                                            const std::byte* end) {
  split(begin), split(end);
  const auto first = segments_.lower_bound(begin), last = segments_.lower_bound(end);
  for (auto it = first; it != last; ++it) {
    const Segment& segment = it->second;
    if (!actor.clock->knows(segment.write.epoch))
      return race(*segment.write.name, "writes", actor, "writes", it->first, segment.end);
    for (const Mark& mark : segment.reads)
      if (!actor.clock->knows(mark.epoch))
        return race(*mark.name, "reads", actor, "writes", it->first, segment.end);
  }
  const auto next = segments_.erase(first, last);
  segments_.emplace_hint(next, begin, Segment{end, {actor.epoch, actor.name}, {}});
  return std::nullopt;
}

}  // namespace holdfast::cuda::sim
