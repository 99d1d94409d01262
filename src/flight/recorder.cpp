#include "src/flight/recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/flight/memory.hpp"

namespace holdfast::flight {
namespace {

void copy_name(char (&to)[flight_name_bytes], std::string_view name) {
  const std::size_t length = std::min(name.size(), flight_name_bytes - 1);
  std::memcpy(to, name.data(), length);
  std::memset(to + length, 0, flight_name_bytes - length);
}

}  // namespace

struct FlightRecorder::Memory : FlightMemory {};

/// The newest `kept` collectives in the order in which they ended.
struct FlightRecorder::History {
  std::atomic<std::uint64_t> count{0};
  std::array<Guarded<FlightEntry>, kept> ring;
};

FlightRecorder::FlightRecorder(const std::filesystem::path& path, int rank, int world)
    : path_(path),
      history_(std::make_unique<History>()),
      current_(std::make_unique<FlightEntry[]>(entries)),
      places_(std::make_unique<FlightGroup[]>(groups)) {
  files::Fd file;
  if (!path.empty()) {
    std::error_code none;
    std::filesystem::remove(path, none);  // readers of the old file keep it open
    file = files::open(path, O_RDWR | O_CREAT | O_EXCL, files::for_owner);
    if (posix_fallocate(file.get(), 0, sizeof(Memory)) != 0)
      throw Error(Exit::runtime, "cannot write the flight record " + path.string(),
                  "there is no room for " + std::to_string(sizeof(Memory)) + " bytes");
  }
  void* at = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                  path.empty() ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) throw system_error("cannot map the flight record", errno);
  memory_ = new (at) Memory;
  memory_->rank = rank;
  memory_->world = world;
  memory_->process = getpid();
  std::atomic_ref(memory_->magic).store(FlightMemory::right_magic, std::memory_order_release);
}

FlightRecorder::~FlightRecorder() {
  munmap(memory_, sizeof(Memory));
  std::error_code ignored;
  if (path_.empty() || failed_) return;
  std::filesystem::remove(path_, ignored);
}

int FlightRecorder::join(std::uint64_t key, std::string_view name, int size, int member) {
  const std::lock_guard lock(writing_);
  for (std::uint32_t place = 0; place < groups; ++place) {
    FlightGroup& group = places_[place];
    if (group.key != 0) continue;
    group = {};
    group.key = key;
    group.size = static_cast<std::uint32_t>(size);
    group.member = static_cast<std::uint32_t>(member);
    copy_name(group.name, name);
    memory_->groups[place].write(group);
    return static_cast<int>(place);
  }
  return -1;
}

void FlightRecorder::leave(int place) {
  if (place < 0) return;
  const std::lock_guard lock(writing_);
  places_[place] = {};
  memory_->groups[place].write({});
}

void FlightRecorder::write(const FlightEntry& entry) {
  current_[entry.ordinal % entries] = entry;
  memory_->entries[entry.ordinal % entries].write(entry);
}

std::uint64_t FlightRecorder::queued(int place, std::uint64_t key, std::string_view name,
                                     Collective operation, std::uint64_t number, std::int64_t bytes,
                                     std::int64_t enqueued_ns) {
  const std::lock_guard lock(writing_);
  FlightEntry entry;
  entry.ordinal = ++ordinal_;
  entry.number = number;
  entry.group = key;
  entry.bytes = bytes;
  entry.enqueued_ns = enqueued_ns;
  entry.operation = operation;
  copy_name(entry.name, name);
  write(entry);
  if (place >= 0) {
    places_[place].queued = number;
    memory_->groups[place].write(places_[place]);
  }
  return entry.ordinal;
}

void FlightRecorder::started(int place, std::uint64_t ordinal) {
  const std::lock_guard lock(writing_);
  FlightEntry entry = current_[ordinal % entries];
  if (entry.ordinal != ordinal)
    return;  // it was overwritten: more collectives are queued behind it than the ring holds
  entry.started_ns = steady_ns();
  entry.state = FlightState::running;
  write(entry);
  if (place < 0) return;
  FlightGroup& group = places_[place];
  group.started = entry.number;
  group.operation = entry.operation;
  memory_->groups[place].write(group);
}

void FlightRecorder::finished(int place, std::uint64_t ordinal, bool failed) {
  const std::lock_guard lock(writing_);
  FlightEntry entry = current_[ordinal % entries];
  failed_ = failed_ || failed;
  if (entry.ordinal != ordinal) return;
  entry.finished_ns = steady_ns();
  entry.state = failed ? FlightState::failed : FlightState::finished;
  write(entry);
  const std::uint64_t count = history_->count.load(std::memory_order_relaxed);
  history_->ring[count % kept].write(entry);
  history_->count.store(count + 1, std::memory_order_release);
  if (place < 0 || failed) return;  // a group whose collective failed stays in it
  places_[place].finished = entry.number;
  memory_->groups[place].write(places_[place]);
}

std::uint64_t FlightRecorder::finished() const { return history_->count.load(std::memory_order_acquire); }

std::optional<FlightEntry> FlightRecorder::finished(std::uint64_t i) const {
  if (i >= finished() || i + kept < finished()) return std::nullopt;
  auto entry = history_->ring[i % kept].read();
  if (i + kept < finished()) return std::nullopt;  // overwritten while it was read
  return entry;
}

FlightRecord FlightRecorder::read() const { return decode(*memory_, *memory_); }

}  // namespace holdfast::flight
