#include "launcher/agent/mover/generation_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {
namespace {
namespace fs = std::filesystem;

constexpr Millis lock_patience{10000}, lock_poll{2};

std::string buffer_file(const Seal::Buffer& buffer) { return buffer.name + ".buffer"; }

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_whole(const fs::path& path, const Seal::Buffer& buffer, const std::stop_token& given_up) {
  constexpr std::int64_t part = 1 << 20;
  const files::Fd file = files::try_open(path, O_RDONLY | O_NOFOLLOW);
  std::vector<std::byte> bytes(part);
  std::uint32_t crc = 0;
  std::int64_t done = 0;
  for (ssize_t got = 1; file && got > 0; done += got) {
    got = ::pread(file.get(), bytes.data(), bytes.size(), done);
    if (got < 0 || given_up.stop_requested()) return false;
    crc = snapshot::crc32_of(crc, bytes.data(), as_size(got));
  }
  return done == buffer.bytes && crc == buffer.crc;
}

}  // namespace

Error not_moved(const std::string& why) { return {Exit::transient, "a state is not moved", why}; }

files::Fd lock_generation(const fs::path& generation, int how, const std::stop_token& given_up) {
  files::Fd fd = files::open(generation, O_RDONLY | O_DIRECTORY);
  const auto limit = Deadline::in(lock_patience);
  while (::flock(fd.get(), how | LOCK_NB) != 0) {
    if (given_up.stop_requested()) throw not_moved("it is given up");
    if (limit.passed()) throw not_moved("it is being written, or read by another one, for too long");
    std::this_thread::sleep_for(lock_poll);
  }
  return fd;
}

void send_buffers(control::BulkStream& stream, const fs::path& generation, const Seal& seal,
                  const std::vector<std::string>& have) {
  for (const auto& buffer : seal.buffers)
    if (!contains(have, buffer.name))
      stream.send_bytes(files::open(generation / buffer_file(buffer), O_RDONLY | O_NOFOLLOW).get(),
                        buffer.bytes);
}

std::vector<std::string> whole_buffers(const fs::path& generation, const Seal& seal,
                                       const std::stop_token& given_up) {
  const files::Fd held = lock_generation(generation, LOCK_SH, given_up);
  std::vector<std::string> whole;
  for (const auto& buffer : seal.buffers)
    if (is_whole(generation / buffer_file(buffer), buffer, given_up)) whole.push_back(buffer.name);
  return whole;
}

IncomingState::IncomingState(const fs::path& generation, const Seal& seal, const std::stop_token& given_up,
                             std::vector<std::string> have)
    : generation_(generation), seal_(seal), have_(std::move(have)) {
  try {
    fs::create_directories(generation);
    held_ = lock_generation(generation, LOCK_EX, given_up);
    fs::remove(generation / "seal");
    for (const auto& name : files::list(generation))  // of another program's buffers
      if (!is_buffer(name)) fs::remove(generation / name);
    for (const auto& buffer : seal.buffers) reserve(buffer);
  } catch (const std::exception& error) {
    clear();
    throw NoRoom(error);
  }
}

IncomingState::~IncomingState() {
  if (!sealed_) clear();
}

bool IncomingState::is_buffer(const std::string& name) const {
  return std::any_of(seal_.buffers.begin(), seal_.buffers.end(),
                     [&](const auto& buffer) { return buffer_file(buffer) == name; });
}

void IncomingState::reserve(const Seal::Buffer& buffer) {
  const fs::path path = generation_ / buffer_file(buffer);
  open_.push_back(files::open(path, O_RDWR | O_CREAT, 0600));
  int error = ::ftruncate(open_.back().get(), buffer.bytes) != 0 ? errno : 0;
  if (error == 0) error = files::reserve(open_.back().get(), buffer.bytes);
  if (error != 0) throw system_error("there is no memory for " + path.string(), error);
}

void IncomingState::take(control::BulkStream& stream) {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (contains(have_, seal_.buffers[i].name)) continue;
    std::uint32_t crc = 0;
    stream.receive_bytes(open_[i].get(), seal_.buffers[i].bytes, [&](std::span<const std::byte> part) {
      crc = snapshot::crc32_of(crc, part.data(), part.size());
    });
    if (crc != seal_.buffers[i].crc)
      throw not_moved(fmt::format("the checksum of {} does not hold", seal_.buffers[i].name));
  }
  try {
    write_seal();
  } catch (const std::exception& error) {
    throw NoRoom(error);
  }
  sealed_ = true;
}

void IncomingState::write_seal() const {
  const fs::path aside = generation_ / "seal.new";
  const std::string text = to_text(seal_);
  const files::Fd file = files::open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  files::write_all(file.get(), text.data(), text.size(), 0, aside);
  fs::rename(aside, generation_ / "seal");
}

void IncomingState::clear() const noexcept {
  if (!held_) return;  // somebody else's
  std::error_code stays;
  for (const auto& name : files::list(generation_)) fs::remove(generation_ / name, stays);
}

std::optional<fs::path> find_state(const fs::path& folder, int rank, std::int64_t step, int attempt) {
  for (const bool copy : {false, true})
    for (const char* generation : {"0", "1"}) {
      const fs::path path = folder / folder_name(rank, copy) / generation;
      if (const auto seal = read_seal(path); seal && seal->is(step, attempt)) return path;
    }
  return std::nullopt;
}

void remove_unless(const fs::path& generation, const std::function<bool(const Seal&)>& of_use) {
  if (!files::is_there(generation)) return;
  const files::Fd held = files::open(generation, O_RDONLY | O_DIRECTORY);
  if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) return;
  const auto seal = read_seal(generation);
  if (seal && of_use(*seal)) return;
  fs::remove(generation / "seal");
  for (const auto& file : files::list(generation)) fs::remove(generation / file);
}

}  // namespace holdfast::launcher
