#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "src/flight/memory.hpp"

namespace holdfast::flight {

std::string_view name_of(Collective operation) {
  switch (operation) {
    case Collective::all_gather:
      return "all-gather";
    case Collective::ordered_reduce_scatter:
      return "ordered reduce-scatter";
    case Collective::exchange_partial_sums:
      return "exchange of partial sums";
    case Collective::all_reduce:
      return "all-reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
  }
  return "collective";
}

namespace {

void tidy(char (&name)[flight_name_bytes]) {
  name[flight_name_bytes - 1] = 0;
  for (char& c : name)
    if (c != 0 && (c < ' ' || c > '~')) c = '?';
}

/// "ranks 0, 1 wait"; a few of thousands are named.
std::string in_which_wait(const std::vector<int>& waiting) {
  constexpr std::size_t most = 8;
  if (waiting.size() == 1) return fmt::format("rank {} waits", waiting.front());
  if (waiting.size() <= most) return fmt::format("ranks {} wait", fmt::join(waiting, ", "));
  return fmt::format("ranks {} and {} others wait", fmt::join(waiting.begin(), waiting.begin() + most, ", "),
                     waiting.size() - most);
}

bool known(Collective operation) { return operation <= Collective::barrier; }

}  // namespace

FlightRecord decode(const FlightMemory& first, const FlightMemory& second) {
  FlightRecord record;
  record.rank = first.rank;
  record.world = first.world;
  record.process = first.process;
  for (std::size_t i = 0; i < first.groups.size(); ++i) {
    auto group = first.groups[i].read(second.groups[i]);
    if (!group || group->key == 0 || !known(group->operation)) continue;
    if (group->finished > group->started || group->started > group->queued) continue;
    tidy(group->name);
    record.groups.push_back(*group);
  }
  for (std::size_t i = 0; i < first.entries.size(); ++i) {
    auto entry = first.entries[i].read(second.entries[i]);
    if (!entry || entry->ordinal == 0 || !known(entry->operation) || entry->state > FlightState::failed)
      continue;
    tidy(entry->name);
    record.entries.push_back(*entry);
  }
  std::sort(record.entries.begin(), record.entries.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.ordinal < b.ordinal; });
  return record;
}

std::optional<FlightRecord> read_flight_record(const std::filesystem::path& path) {
  const files::Fd file = files::try_open(path, O_RDONLY | O_NOFOLLOW);
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0 || as_size(facts.st_size) != sizeof(FlightMemory))
    return std::nullopt;
  // Copies and not a mapping, for the file may shrink during the read. Two copies: entries that were written
  // during one of them differ in the other.
  const auto first = std::make_unique<FlightMemory>(), second = std::make_unique<FlightMemory>();
  for (FlightMemory* look : {first.get(), second.get()})
    if (pread(file.get(), static_cast<void*>(look), sizeof *look, 0) != static_cast<ssize_t>(sizeof *look))
      return std::nullopt;
  if (first->magic != FlightMemory::right_magic || first->bytes != sizeof(FlightMemory) || first->rank < 0 ||
      first->rank >= first->world)
    return std::nullopt;
  return decode(*first, *second);
}

std::vector<StuckRank> stuck_ranks(std::span<const FlightRecord> records) {
  struct Place {
    int rank;
    const FlightGroup* group;
    bool waits() const { return group->started > group->finished; }
  };
  std::map<std::uint64_t, std::vector<Place>> groups;  // by key
  std::map<int, bool> waits_somewhere;
  for (const FlightRecord& record : records)
    for (const FlightGroup& group : record.groups) {
      groups[group.key].push_back({record.rank, &group});
      waits_somewhere[record.rank] |= groups[group.key].back().waits();
    }

  std::map<int, std::string> behind;
  for (const auto& [key, places] : groups) {
    const auto furthest = std::max_element(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.group->started < b.group->started;
    });
    const std::uint64_t number = furthest->group->started;
    std::vector<int> waiting;
    for (const Place& place : places)
      if (place.group->started == number && place.waits()) waiting.push_back(place.rank);
    if (waiting.empty()) continue;
    std::sort(waiting.begin(), waiting.end());
    for (const Place& place : places)
      if (place.group->started < number)
        behind.emplace(place.rank, fmt::format("rank {} has not entered {} #{} of {}, in which {}",
                                               place.rank, name_of(furthest->group->operation), number,
                                               furthest->group->name, in_which_wait(waiting)));
  }
  const bool somebody_free =
      std::any_of(behind.begin(), behind.end(), [&](const auto& b) { return !waits_somewhere[b.first]; });
  std::vector<StuckRank> stuck;
  for (const auto& [rank, why] : behind)
    if (!somebody_free || !waits_somewhere[rank]) stuck.push_back({rank, why});
  return stuck;
}

std::string to_text(const FlightRecord& record) {
  std::string text = fmt::format("rank {} of {}", record.rank, record.world);
  for (const FlightGroup& group : record.groups)
    text += fmt::format("\n  {}: {} queued, {} entered, {} finished", group.name, group.queued, group.started,
                        group.finished);
  for (const FlightEntry& entry : record.entries)
    if (entry.state != FlightState::finished)
      text += fmt::format("\n  {} #{} of {}, {} bytes: {}", name_of(entry.operation), entry.number,
                          entry.name, entry.bytes,
                          entry.state == FlightState::queued    ? "queued"
                          : entry.state == FlightState::running ? "entered"
                                                                : "failed");
  return text;
}

}  // namespace holdfast::flight
