#include "launcher/agent/daemon/gpu_job_mapping.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

constexpr off_t longest_list = 64 * 1024;  // bytes
constexpr unsigned for_everybody = 0644;   // the exporter is another user
constexpr Millis locked_limit{200}, between_tries{5};

/// Agents of several jobs may change one file.
files::Fd lock_folder(const files::fs::path& folder) {
  files::Fd fd = files::open(folder, O_RDONLY | O_DIRECTORY);
  const auto latest = Clock::now() + locked_limit;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) throw system_error("cannot lock " + folder.string(), errno);
    if (Clock::now() > latest) throw Error(Exit::transient, "another process has locked " + folder.string());
    std::this_thread::sleep_for(between_tries);
  }
  return fd;
}

/// Absent: there is no such file. Others may write to the folder, too: only what is a short file is read, and
/// no link is followed, for what it leads to would become readable for everybody.
std::optional<std::string> read_list(const files::fs::path& file) {
  const files::Fd fd = files::try_open(file, O_RDONLY | O_NOFOLLOW);
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw system_error("cannot read " + file.string(), errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0 || facts.st_size > longest_list)
    throw Error(Exit::runtime, file.string() + " is no list of jobs");
  std::string text(as_size(facts.st_size), '\0');
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  if (got < 0) throw system_error("cannot read " + file.string(), errno);
  text.resize(as_size(got));
  return text;
}

void write_list(const files::fs::path& file, const std::string& text) {
  const auto aside = files::name_aside(file);
  try {
    const files::Fd fd = files::open(aside, O_WRONLY | O_CREAT | O_EXCL, for_everybody);
    ::fchmod(fd.get(), for_everybody);  // whatever the umask says
    files::append_all(fd.get(), text, aside);
    if (::rename(aside.c_str(), file.c_str()) != 0)
      throw system_error("cannot replace " + file.string(), errno);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
}

void remove_list(const files::fs::path& file) {
  if (::unlink(file.c_str()) != 0 && errno != ENOENT)
    throw system_error("cannot remove " + file.string(), errno);
}

}  // namespace

std::string without_job(std::string_view text, std::string_view job) {
  std::string out;
  for (const auto line : lines_of(text))
    if (line != job) out.append(line).append("\n");
  return out;
}

std::string with_job(std::string_view text, std::string_view job) {
  return without_job(text, job).append(job).append("\n");
}

GpuJobMapping::GpuJobMapping(files::fs::path folder, std::string job, std::vector<std::string> gpus)
    : folder_(std::move(folder)), job_(std::move(job)), gpus_(std::move(gpus)) {
  if (folder_.empty()) return;
  if (gpus_.empty())
    trouble_ = "SLURM does not say which GPUs the job has here";
  else if (!files::on_node(folder_))
    trouble_ =
        folder_.string() +
        " is not there, or no folder of this node's own, and the files of all nodes have the same names";
  if (trouble_.empty()) {
    change(with_job);
  } else {
    gpus_.clear();
    log::warn("dcgm-exporter will not know the job of the GPUs: {}", trouble_);
  }
}

GpuJobMapping::~GpuJobMapping() { change(without_job); }

void GpuJobMapping::change(std::string (*changed)(std::string_view, std::string_view)) {
  if (folder_.empty() || gpus_.empty()) return;
  try {
    const files::Fd lock = lock_folder(folder_);
    for (const auto& gpu : gpus_) {
      const auto file = folder_ / gpu;
      const auto before = read_list(file);
      const std::string after = changed(before.value_or(""), job_);
      if (after == before.value_or("")) continue;
      if (after.empty())
        remove_list(file);
      else
        write_list(file, after);
    }
  } catch (const std::exception& error) {
    if (!trouble_.empty()) return;
    trouble_ = error.what();
    log::warn("dcgm-exporter does not know the job of all GPUs: {}", trouble_);
  }
}

}  // namespace holdfast::launcher
