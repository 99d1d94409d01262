// Every 500 ms copy() lets the thread of worker_ go through all spooled files. For each it reads what follows
// the bytes already copied, in pieces of 1 MiB, appends them to the log in the run directory, and then writes
// the new count into the file NAME.copied. If the agent ends between the two, the next one appends a piece
// twice, but none is left out. Copied memory is given back by punching holes, except for the last 64 KiB.
//
// The first file that cannot be copied ends the pass, and the next pass tries again. While a pass takes
// longer than 500 ms, the loop's thread itself drops the oldest bytes of files that exceed max_waiting; the
// copying thread finds the hole by SEEK_DATA and writes into the log how much is missing. The mutex keeps
// bytes from being dropped while they are read; the loop only tries to lock it. The thread owns Shared and
// may outlive the agent.
#include "launcher/agent/ranks/log_spool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "launcher/agent/ranks/rank_start.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

constexpr Millis copy_period{500};
constexpr std::chrono::seconds kept_open{60};  // to open a file asks the servers of shared storage
constexpr std::int64_t chunk_bytes = 1 << 20;
constexpr std::int64_t page = 4096;
constexpr std::int64_t tail_bytes = 64 << 10;  // stay in memory: who asks why a rank ended reads them
constexpr const char* mark_ending = ".copied";

std::int64_t bytes_of(const files::Fd& file) {
  struct stat info {};
  return ::fstat(file.get(), &info) == 0 ? info.st_size : 0;
}

/// How many bytes of a spooled file have been copied: a file beside it, for the agent after this one.
std::int64_t copied_of(const files::Fd& mark) {
  std::int64_t copied = 0;
  return ::pread(mark.get(), &copied, sizeof copied, 0) == sizeof copied ? copied : 0;
}

fs::path mark_of(const fs::path& file) { return file.string() + mark_ending; }

std::vector<fs::path> spooled_files(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (fs::recursive_directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored))
    if (it->is_regular_file(ignored) && it->path().extension() != mark_ending) out.push_back(it->path());
  return out;
}

void give_back(const files::Fd& file, std::int64_t end) {
  if (end >= page) ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end / page * page);
}

/// What is read next, at `from` or behind bytes that were dropped there; empty: nothing.
struct Chunk {
  std::int64_t from = 0;
  std::string bytes;
};
Chunk read_chunk(const files::Fd& file, std::int64_t copied) {
  Chunk chunk{copied, {}};
  const std::int64_t size = bytes_of(file);
  if (copied >= size) return chunk;
  chunk.from = ::lseek(file.get(), copied, SEEK_DATA);
  if (chunk.from < 0) return {size, {}};
  chunk.bytes.resize(as_size(std::min(chunk_bytes, size - chunk.from)));
  const ssize_t got = ::pread(file.get(), chunk.bytes.data(), chunk.bytes.size(), chunk.from);
  chunk.bytes.resize(as_size(std::max<ssize_t>(0, got)));
  return chunk;
}

}  // namespace

fs::path spooled_path(const Scratch& scratch, const RunDir& run, const fs::path& log) {
  return scratch.logs() / log.lexically_relative(run.logs());
}

fs::path spooled(const Scratch& scratch, const RunDir& run, const fs::path& log) {
  fs::path path = spooled_path(scratch, run, log);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) throw system_error("cannot create " + path.parent_path().string(), error.value());
  return path;
}

/// What the copying thread uses; it may outlive the agent.
struct LogSpool::Shared {
  fs::path spool, logs;
  std::atomic<int> attempt{0};
  std::mutex mutex;  ///< bytes are read, or dropped
  bool warned = false;
  /// The file in the run directory, and when it was opened.
  struct Open {
    files::Fd file;
    Clock::time_point at;
  };
  std::map<fs::path, Open> open_logs;

  int opened(const fs::path& log);
  void copy(const fs::path& file);
  void copy_all();
  void drop_old(const fs::path& file);
};

int LogSpool::Shared::opened(const fs::path& log) {
  Open& known = open_logs[log];
  if (!known.file) {
    fs::create_directories(log.parent_path());
    known = {files::open(log, O_WRONLY | O_CREAT | O_APPEND), Clock::now()};
  }
  return known.file.get();
}

void LogSpool::Shared::copy(const fs::path& file) {
  const files::Fd from = files::open(file, O_RDWR), mark = files::open(mark_of(file), O_RDWR | O_CREAT);
  const fs::path to = logs / file.lexically_relative(spool);
  std::int64_t copied = copied_of(mark);
  for (;;) {
    Chunk chunk;
    {
      const std::scoped_lock lock(mutex);
      chunk = read_chunk(from, copied);
    }
    if (chunk.from == copied && chunk.bytes.empty()) break;
    const int log = opened(to);
    const std::int64_t next = chunk.from + static_cast<std::int64_t>(chunk.bytes.size());
    if (chunk.from > copied)
      chunk.bytes.insert(0, fmt::format("\n[{} of this log were dropped: shared storage did not take them]\n",
                                        size_text(chunk.from - copied)));
    files::append_all(log, chunk.bytes, to);
    ::sync_file_range(log, 0, 0, SYNC_FILE_RANGE_WRITE);  // other nodes see it soon, as after closing it
    copied = next;
    files::write_all(mark.get(), &copied, sizeof copied, 0, mark_of(file));
  }
  give_back(from, copied - tail_bytes);
  if (const int of = attempt_of_logs(file.parent_path().filename()); of > 0 && of < attempt) {
    fs::remove(file);
    fs::remove(mark_of(file));
    open_logs.erase(to);
    std::error_code not_empty;
    fs::remove(file.parent_path(), not_empty);
  }
}

void LogSpool::Shared::copy_all() {
  std::erase_if(open_logs, [now = Clock::now()](const auto& one) { return now - one.second.at > kept_open; });
  for (const auto& file : spooled_files(spool)) {
    try {
      copy(file);
      warned = false;
    } catch (const std::exception& error) {  // tried again at the next tick
      open_logs.clear();
      if (!std::exchange(warned, true)) log::warn("logs wait in the memory of this node: {}", error.what());
      return;
    }
  }
}

void LogSpool::Shared::drop_old(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || info.st_blocks * 512 <= max_waiting) return;
  const files::Fd fd = files::try_open(file, O_RDWR);
  if (fd) give_back(fd, info.st_size - max_waiting / 2);
}

LogSpool::LogSpool(control::Loop& loop, const Scratch& scratch, const RunDir& run)
    : shared_(std::make_shared<Shared>()), worker_(loop, Millis(100)) {
  shared_->spool = scratch.logs();
  shared_->logs = run.logs();
  timer_ = loop.every(copy_period, [this] { copy(); });
}

void LogSpool::forget_older(int attempt) { shared_->attempt = attempt; }

void LogSpool::copy() {
  if (const auto busy = worker_.busy_for(); busy && *busy > copy_period) {
    const std::unique_lock lock(shared_->mutex, std::try_to_lock);
    if (lock)
      for (const auto& file : spooled_files(shared_->spool)) shared_->drop_old(file);
  }
  if (std::exchange(copying_, true)) return;
  worker_.run([shared = shared_] { shared->copy_all(); }, [this] { copying_ = false; });
}

bool LogSpool::empty() const {
  if (copying_) return false;
  const auto files = spooled_files(shared_->spool);
  return std::all_of(files.begin(), files.end(), [](const fs::path& file) {
    const files::Fd mark = files::try_open(mark_of(file), O_RDONLY);
    std::error_code ignored;
    return mark && copied_of(mark) >= static_cast<std::int64_t>(fs::file_size(file, ignored));
  });
}

}  // namespace holdfast::launcher
