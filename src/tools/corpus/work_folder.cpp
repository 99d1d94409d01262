#include "src/tools/corpus/work_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "src/base/error.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t key_digits = 32;

bool is_key(const std::string& name) {
  return name.size() == key_digits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

fs::path WorkFolder::part_file(const char* kind, std::size_t part, const char* end) const {
  return path / fmt::format("{}-{:06}{}", kind, part, end);
}

void create(const WorkFolder& work) {
  const fs::path all = work.path.parent_path();
  std::error_code error;
  if (fs::create_directories(all, error); !error) files::close_own_folder(all);
  if (!error) fs::create_directory(work.path, error);
  if (error)
    throw Error(Exit::usage, "cannot make " + work.path.string(), error.message(),
                "Choose another --output?");
}

void remove(const WorkFolder& work) {
  const fs::path all = work.path.parent_path();
  std::error_code ignored;
  for (const std::string& name : files::list(all))
    if (is_key(name) || name == "lock") fs::remove_all(all / name, ignored);
  fs::remove(all, ignored);  // holds when jobs wrote their logs there
}

WorkLock::WorkLock(const WorkFolder& work) {
  const fs::path path = work.path.parent_path() / "lock";
  fd_ = files::open(path, O_RDWR | O_CREAT, 0644);
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(Exit::usage, "another process prepares this output", path.string() + " is locked",
                "Wait for it, or choose another --output?");
}

}  // namespace holdfast::corpus
