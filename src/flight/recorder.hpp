#pragma once
// The flight recorder: the last 256 collectives of a rank and the state of each of its groups, in memory that
// another process of the node can read at any time, also after a SIGKILL. One writer at a time (the
// communication thread, or the thread that watches a GPU); readers validate all they read.
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
/// The name in logs: "all-gather", "ordered reduce-scatter", ...
std::string_view name_of(Collective operation);

/// queued: behind others, or its dependencies are not complete; running: this rank has entered it, so the
/// other members of the group do not wait for this rank.
enum class FlightState : std::uint32_t { queued, running, finished, failed };

constexpr std::size_t flight_name_bytes = 32;  ///< longest group name in a record, with its final zero

/// One collective of one rank. Times are CLOCK_MONOTONIC, ns; 0: not yet.
struct FlightEntry {
  std::uint64_t ordinal = 0;  ///< 1, 2, ... over all groups of the rank, as they were enqueued
  std::uint64_t number = 0;   ///< 1, 2, ... within the group: the same on all members
  std::uint64_t group = 0;    ///< key of the group, see FlightGroup
  std::int64_t bytes = 0;     ///< sent by this rank
  std::int64_t enqueued_ns = 0, started_ns = 0, finished_ns = 0;
  Collective operation = Collective::barrier;
  FlightState state = FlightState::queued;
  char name[flight_name_bytes] = {};  ///< of the group
};

/// The state of a rank in one of its groups: numbers of the last collective that was enqueued, ...
struct FlightGroup {
  std::uint64_t key = 0;  ///< equal on all members of a group, and unique; 0: an unused entry
  std::uint64_t queued = 0, started = 0, finished = 0;
  std::uint32_t size = 0, member = 0;
  Collective operation = Collective::barrier;  ///< the one that was started last
  std::uint32_t reserved = 0;
  char name[flight_name_bytes] = {};
};

/// The record of a rank, as read.
struct FlightRecord {
  int rank = 0, world = 0;
  std::int64_t process = 0;
  std::vector<FlightGroup> groups;
  std::vector<FlightEntry> entries;  ///< oldest first; without those that were being written
};

class FlightRecorder {
 public:
  static constexpr std::uint32_t entries = 256, groups = 64;

  /// Writes to a new file at `path`, replacing an old one; with an empty path to private memory. The
  /// destructor removes the file unless an operation failed: it is then kept for diagnosis. An Error
  /// (runtime) names the path.
  FlightRecorder(const std::filesystem::path& path, int rank, int world);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // For the code that runs collectives; any thread.
  /// The index of a group, for the functions below; -1 when all are in use: then only its entries are
  /// recorded.
  int join(std::uint64_t key, std::string_view name, int size, int member);
  void leave(int place);
  /// Returns the entry's ordinal.
  std::uint64_t queued(int place, std::uint64_t key, std::string_view name, Collective operation,
                       std::uint64_t number, std::int64_t bytes, std::int64_t enqueued_ns);
  void started(int place, std::uint64_t ordinal);
  void finished(int place, std::uint64_t ordinal, bool failed);

  // For any thread of the process.
  /// How many collectives have ended so far; the newest `kept` of them can be read.
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

/// A rank for which other ranks wait.
struct StuckRank {
  int rank = 0;
  std::string why;  ///< "rank 3 has not entered all-gather #812 of shard group 0, in which ranks 0, 1 wait"
};
/// The ranks that hold up a job, from the records of several of its ranks: those that have not entered the
/// collective in which other members of the group wait. A rank that itself waits in another group is left out
/// as long as there is one that does not. Ascending by rank; empty when no rank waits for one of these.
std::vector<StuckRank> stuck_ranks(std::span<const FlightRecord> records);

/// One line per group and per collective that has not ended, for a log.
std::string to_text(const FlightRecord& record);

}  // namespace holdfast::flight
