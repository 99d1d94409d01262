#pragma once
// What a rank's collectives were doing, for those who come when it is too late to ask: the last 256 of them
// and where each group stands, in memory that another process of the node can read at any moment, also after
// a SIGKILL. One writer at a time (the communication thread, the watch of a GPU); readers never trust what
// they find.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::flight {

enum class Collective : std::uint32_t {
  all_gather,
  ordered_reduce_scatter,
  exchange_partial_sums,
  all_reduce,
  broadcast,
  barrier
};
/// As people read it: "all-gather", "ordered reduce-scatter", ...
std::string_view name_of(Collective operation);

/// queued: behind others, or what it depends on has not happened; running: entered, so that the others of the
/// group need not wait for this rank to come.
enum class FlightState : std::uint32_t { queued, running, finished, failed };

constexpr std::size_t flight_name_bytes = 32;  ///< longest group name in a record, with its final zero

/// One collective of one rank. Times are CLOCK_MONOTONIC, ns; 0: not yet.
struct FlightEntry {
  std::uint64_t ordinal = 0;  ///< 1, 2, ... over all groups of the rank, as they were enqueued
  std::uint64_t number = 0;   ///< 1, 2, ... within the group: the same on all members
  std::uint64_t group = 0;    ///< key of the group, see FlightGroup
  std::int64_t bytes = 0;     ///< what this rank gives to others
  std::int64_t enqueued_ns = 0, started_ns = 0, finished_ns = 0;
  Collective operation = Collective::barrier;
  FlightState state = FlightState::queued;
  char name[flight_name_bytes] = {};  ///< of the group
};

/// Where a rank stands in one of its groups: numbers of the last collective that was enqueued, ...
struct FlightGroup {
  std::uint64_t key = 0;  ///< equal on all members of a group and of no other; 0: an empty place
  std::uint64_t queued = 0, started = 0, finished = 0;
  std::uint32_t size = 0, member = 0;
  Collective operation = Collective::barrier;  ///< the one that was started last
  std::uint32_t reserved = 0;
  char name[flight_name_bytes] = {};
};

/// A rank's record as it was read.
struct FlightRecord {
  int rank = 0, world = 0;
  std::int64_t process = 0;
  std::vector<FlightGroup> groups;
  std::vector<FlightEntry> entries;  ///< oldest first; those that were being written are left out
};

class FlightRecorder {
 public:
  static constexpr std::uint32_t entries = 256, groups = 64;

  /// Writes to a new file at `path`, replacing what is there; with an empty path to memory of its own. The
  /// file is removed by the destructor unless an operation failed: then somebody may want to read it. An
  /// Error (runtime) names the path.
  FlightRecorder(const std::filesystem::path& path, int rank, int world);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // By those who carry out collectives; any thread.
  /// A place for a group, to be used below; -1 when all are taken: then only its entries are recorded.
  int join(std::uint64_t key, std::string_view name, int size, int member);
  void leave(int place);
  /// Returns the entry's ordinal.
  std::uint64_t queued(int place, std::uint64_t key, std::string_view name, Collective operation,
                       std::uint64_t number, std::int64_t bytes, std::int64_t enqueued_ns);
  void started(int place, std::uint64_t ordinal);
  void finished(int place, std::uint64_t ordinal, bool failed);

  // By any thread of the process.
  /// How many collectives have ended so far; the newest `kept` of them can be asked for.
  std::uint64_t finished() const;
  static constexpr std::uint64_t kept = 4096;
  /// The i-th that ended, i in [0, finished()); nothing when it was overwritten.
  std::optional<FlightEntry> finished(std::uint64_t i) const;
  FlightRecord read() const;

 private:
  struct Memory;
  struct History;
  void write(const FlightEntry& entry);

  std::mutex writing_;
  std::filesystem::path path_;
  Memory* memory_ = nullptr;
  std::unique_ptr<History> history_;
  std::unique_ptr<FlightEntry[]> current_;  // the writer's copy of the ring
  std::unique_ptr<FlightGroup[]> places_;   // and of the groups
  std::uint64_t ordinal_ = 0;
  bool failed_ = false;
};

/// Reads the record of a living or dead rank. Nothing when there is no such file, or when it is not a whole
/// record of this version.
std::optional<FlightRecord> read_flight_record(const std::filesystem::path& path);

/// A rank for which others wait.
struct StuckRank {
  int rank = 0;
  std::string why;  ///< "rank 3 has not entered all-gather #812 of shard group 0, in which ranks 0, 1 wait"
};
/// Who holds up a job, from the records of several of its ranks: those that have not entered the collective
/// in which other members of the group wait. Whoever itself waits for others elsewhere is left out while
/// there is somebody who does not. Ascending by rank; empty when nobody waits for one of these ranks.
std::vector<StuckRank> stuck_ranks(std::span<const FlightRecord> records);

/// One line per group and per collective that has not ended, for a log.
std::string to_text(const FlightRecord& record);

}  // namespace holdfast::flight
