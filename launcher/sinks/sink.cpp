#include "launcher/sinks/sink.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher::sinks {
namespace {

using nlohmann::json;

constexpr std::uint64_t read_block = 1 << 20;  // bytes

void give(const std::string& text, const std::vector<std::unique_ptr<Sink>>& sinks) {
  const json line = json_from(text);
  if (!line.is_object() || line.contains("lost")) return;
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer() || step->get<std::int64_t>() < 1) return;
  for (const auto& sink : sinks) sink->take(line);
}

/// One that fails keeps none of the others from it.
void flush_all(const std::vector<std::unique_ptr<Sink>>& sinks) {
  std::exception_ptr failed;
  for (const auto& sink : sinks) {
    try {
      sink->flush();
    } catch (const Error&) {
      failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace

void MetricsFeed::feed(const std::vector<std::unique_ptr<Sink>>& sinks) {
  if (!files::is_there(file_)) return;
  const auto fd = files::open(file_, O_RDONLY | O_CLOEXEC);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) throw system_error("cannot read " + file_.string(), errno);
  if (inode_ != facts.st_ino || static_cast<std::uint64_t>(facts.st_size) < at_) {
    if (inode_ != 0)
      for (const auto& sink : sinks) sink->restart();
    inode_ = facts.st_ino;
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    at_ = size > most_bytes_ ? size - most_bytes_ : 0;
    in_a_line_ = at_ > 0;
    rest_.clear();
  }
  std::string block(read_block, '\0');
  while (true) {
    const ssize_t got = ::pread(fd.get(), block.data(), block.size(), static_cast<off_t>(at_));
    if (got < 0) throw system_error("cannot read " + file_.string(), errno);
    if (got == 0) break;
    at_ += static_cast<std::uint64_t>(got);
    rest_.append(block.data(), static_cast<unsigned long>(got));
    std::string::size_type begin = 0;
    for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
      if (!std::exchange(in_a_line_, false)) give(rest_.substr(begin, end - begin), sinks);
      begin = end + 1;
    }
    rest_.erase(0, begin);
  }
  flush_all(sinks);
}

std::optional<double> number_in(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

double unix_time_of(const json& line) {
  const auto found = line.find("time");
  if (found == line.end() || !found->is_string()) return 0;
  const auto text = found->get<std::string>();
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (!rest) return 0;
  return static_cast<double>(::timegm(&parts)) + (*rest == '.' ? std::strtod(rest, nullptr) : 0);
}

}  // namespace holdfast::launcher::sinks
