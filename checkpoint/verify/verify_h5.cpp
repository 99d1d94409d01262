// problems_seen_by_hdf5() forks a child and reads from a pipe what it says, one line for each event. The
// child closes other descriptors, limits its time, its memory and core dumps, and enters a sandbox in which
// it can only read. Then look_at() opens one file after the other and compares the datasets that HDF5 finds
// with expected_in_shard() or expected_in_index(), which follow from the manifest alone.
//
// The parent opens no HDF5 file. A child that ends without its last line "D" has crashed, run out of memory
// or time, or given up: that is a problem of the file that it named last. A sandbox that the system does not
// offer is a warning in the log, and the check goes on without it.
#include "checkpoint/verify/verify_h5.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/shards/h5.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/sandbox.hpp"
#include "src/base/text.hpp"

namespace holdfast::checkpoint {
namespace {

using Complain = std::function<void(const std::string&)>;
using Expected = std::map<std::string, h5::Dataset>;

constexpr std::int64_t max_indexed_pieces_of_4 = 131072;

Expected expected_in_shard(const Manifest& m, std::size_t rank) {
  const ShardInfo& shard = m.shards[rank];
  Expected expected;
  expected[record_name] = {record_name, {record_elements(shard)}, h5::Element::int64,
                           false,       shard.data_offset,        {}};
  for (const StoredPiece& piece : pieces_of(m, rank)) {
    const LogicalTensor& tensor = m.tensors[piece.span.tensor];
    const std::string name = dataset_name(tensor, piece.span.first);
    expected[name] = {name, {piece.span.count}, h5::element_of(tensor.type), false, piece.offset, {}};
  }
  return expected;
}

Expected expected_in_index(const Manifest& m) {
  // In version 4 the index of many pieces had the model alone.
  std::int64_t pieces = 0;
  for (const ShardInfo& shard : m.shards) pieces += std::ssize(shard.pieces);
  const bool all = m.version != 4 || pieces <= max_indexed_pieces_of_4;
  const auto is_there = [&](const LogicalTensor& tensor) { return all || tensor.name.starts_with("model/"); };
  Expected expected;
  for (const LogicalTensor& tensor : m.tensors)
    if (is_there(tensor))
      expected[tensor.name] = {tensor.name,
                               m.version < 5 ? std::vector{tensor.rows, tensor.cols} : shape_of(tensor),
                               h5::element_of(tensor.type),
                               tensor.elements() > 0,
                               -1,
                               {}};
  for (std::size_t rank = 0; rank < m.shards.size(); ++rank)
    for (const StoredPiece& piece : pieces_of(m, rank)) {
      const LogicalTensor& tensor = m.tensors[piece.span.tensor];
      if (is_there(tensor))
        expected[tensor.name].sources.push_back(
            {m.shards[rank].file, "/" + dataset_name(tensor, piece.span.first), -1, piece.span.count});
    }
  return expected;
}

void sort_sources(std::vector<h5::VirtualPart>& sources) {
  std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) {
    return std::tie(a.file, a.dataset, a.count) < std::tie(b.file, b.dataset, b.count);
  });
}

bool same_sources(std::vector<h5::VirtualPart> a, std::vector<h5::VirtualPart> b) {
  sort_sources(a), sort_sources(b);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return std::tie(x.file, x.dataset, x.count) == std::tie(y.file, y.dataset, y.count);
  });
}

void compare(const std::string& file, Expected expected, const std::vector<h5::Dataset>& seen,
             bool offsets_count, const Complain& complain) {
  for (const h5::Dataset& dataset : seen) {
    const auto found = expected.find(dataset.name);
    if (found == expected.end()) {
      complain(file + ": dataset " + dataset.name + " is not in the manifest");
      continue;
    }
    const h5::Dataset& want = found->second;
    if (dataset.shape != want.shape || dataset.element != want.element ||
        dataset.is_virtual != want.is_virtual)
      complain(file + ": dataset " + dataset.name +
               " has another shape, type or layout than the manifest says");
    else if (offsets_count && dataset.offset != want.offset)
      complain(file + ": dataset " + dataset.name + " is at byte " + std::to_string(dataset.offset) +
               ", the manifest says " + std::to_string(want.offset));
    else if (!same_sources(dataset.sources, want.sources))
      complain(file + ": dataset " + dataset.name + " shows other pieces than the manifest says");
    expected.erase(found);
  }
  for (const auto& [name, dataset] : expected)
    complain(std::string(file).append(": dataset ").append(name).append(" is missing"));
}

void look_at(const fs::path& step_dir, const Manifest& m, const std::string& file, const Complain& complain) {
  try {
    const h5::Id h5_file = h5::open_file(step_dir / file);
    const std::vector<h5::Dataset> seen = h5::datasets_of(h5_file.get());
    if (file == index_file_name) return compare(file, expected_in_index(m), seen, false, complain);
    for (std::size_t rank = 0; rank < m.shards.size(); ++rank)
      if (m.shards[rank].file == file) compare(file, expected_in_shard(m, rank), seen, true, complain);
  } catch (const std::exception& e) {
    complain(file + ": " + e.what());
  }
}

/// What HDF5 may take on top of what we have: files that lie about sizes must not empty the machine.
constexpr std::uint64_t max_memory = std::uint64_t{4} << 30;

/// Address space of this process in bytes.
std::uint64_t memory_now() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void limit(__rlimit_resource what, std::uint64_t value) {
  struct rlimit now {};
  if (::getrlimit(what, &now) != 0) return;
  now.rlim_cur = std::min<rlim_t>(now.rlim_max, value);
  (void)::setrlimit(what, &now);
}

/// One line per event: "O text" there is no sandbox, "F name" a file is begun, "P text" a problem, "D" all
/// done.
void say(int pipe, char what, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  files::append_all(pipe, std::string(1, what) + " " + text + "\n", "pipe");
}

[[noreturn]] void child(int pipe, const fs::path& step_dir, const Manifest& m,
                        const std::vector<std::string>& names) {
  close_inherited(pipe);
  // A crash is an answer, not something to look into; and HDF5 may also loop for ever.
  for (const int signal : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, SIG_DFL);
  ::alarm(600);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_AS, memory_now() + max_memory);
  try {
    if (const auto why = enter_reading_sandbox(pipe)) say(pipe, 'O', *why);
    for (const std::string& file : names) {
      say(pipe, 'F', file);
      look_at(step_dir, m, file, [&](const std::string& problem) { say(pipe, 'P', problem); });
    }
    say(pipe, 'D', "");
  } catch (...) {
    ::_exit(1);  // the missing "D" tells
  }
  ::_exit(0);
}

/// No more than a manifest's names can be the reason of.
constexpr std::size_t max_said = std::size_t{64} << 20;

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || text.size() > max_said) return text;
    text.append(buffer, as_size(n));
  }
}

}  // namespace

std::vector<std::string> problems_seen_by_hdf5(const fs::path& step_dir, const Manifest& manifest,
                                               const std::vector<std::string>& names) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("cannot make a pipe", errno);
  files::Fd read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw system_error("cannot start a process to look at HDF5 files", errno);
  if (pid == 0) child(write_end.get(), step_dir, manifest, names);
  write_end.reset();
  const std::string said = read_all(read_end.get());
  read_end.reset();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }

  std::vector<std::string> problems;
  std::string current = "the first file";
  bool done = false;
  for (const auto line : lines_of(said)) {
    if (line.data() == said.data() && line.starts_with("O "))  // later ones may be of a file's making
      log::warn("HDF5 reads without a sandbox ({})", line.substr(2));
    if (line.starts_with("F ")) current = line.substr(2);
    if (line.starts_with("P ")) problems.emplace_back(line.substr(2));
    done |= line.starts_with("D");
  }
  if (!done)
    problems.push_back(current + ": HDF5 cannot read it (" +
                       (WIFSIGNALED(status) ? std::string(::strsignal(WTERMSIG(status))) : "it gave up") +
                       ")");
  return problems;
}

}  // namespace holdfast::checkpoint
