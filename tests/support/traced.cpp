#include "tests/support/traced.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>  // RENAME_EXCHANGE
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <map>
#include <optional>

#include "src/base/as_size.hpp"

namespace holdfast::test {
namespace {

const std::map<long, const char*> changing_calls = {
    {SYS_write, "write"},         {SYS_pwrite64, "pwrite"},   {SYS_fallocate, "fallocate"},
    {SYS_ftruncate, "ftruncate"}, {SYS_fsync, "fsync"},       {SYS_fdatasync, "fdatasync"},
    {SYS_rename, "rename"},       {SYS_renameat, "renameat"}, {SYS_renameat2, "renameat2"},
    {SYS_mkdir, "mkdir"},         {SYS_mkdirat, "mkdirat"},   {SYS_unlink, "unlink"},
    {SYS_unlinkat, "unlinkat"},   {SYS_rmdir, "rmdir"},       {SYS_close, "close"}};

bool creates(const __ptrace_syscall_info& call) {
  return (call.entry.nr == SYS_openat && (call.entry.args[2] & O_CREAT) != 0) ||
         (call.entry.nr == SYS_open && (call.entry.args[1] & O_CREAT) != 0);
}

constexpr int syscall_stop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD

/// Runs the child to its next stop at a system call; false when it has ended.
bool next_stop(pid_t pid, Traced& result) {
  for (long signal = 0;;) {
    if (::ptrace(PTRACE_SYSCALL, pid, nullptr, signal) != 0) return false;
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFSTOPPED(status)) {
      result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return false;
    }
    if (WSTOPSIG(status) == syscall_stop) return true;
    signal = WSTOPSIG(status);  // its own: let it have it
  }
}

void kill_and_reap(pid_t pid, Traced& result) {
  ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/// The call does not happen; the child sees -error. Called when the call is entered; ends when it returned.
bool fail_call(pid_t pid, int error, Traced& result) {
  ::ptrace(PTRACE_POKEUSER, pid, offsetof(user_regs_struct, orig_rax), -1L);
  if (!next_stop(pid, result)) return false;
  ::ptrace(PTRACE_POKEUSER, pid, offsetof(user_regs_struct, rax), static_cast<long>(-error));
  return true;
}

void watch(pid_t pid, int at, Fault fault, Traced& result) {
  while (next_stop(pid, result)) {
    __ptrace_syscall_info call{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) <= 0 ||
        call.op != PTRACE_SYSCALL_INFO_ENTRY)
      continue;
    const auto known = changing_calls.find(static_cast<long>(call.entry.nr));
    const bool is_write = call.entry.nr == SYS_pwrite64 || call.entry.nr == SYS_write;
    const bool counts = fault == Fault::half_write   ? is_write
                        : fault == Fault::read_error ? call.entry.nr == SYS_pread64
                                                     : known != changing_calls.end() || creates(call);
    if (!counts || result.calls++ != at) continue;
    result.struck = fault == Fault::read_error      ? "pread"
                    : known == changing_calls.end() ? "open"
                                                    : known->second;
    if (fault == Fault::kill) return kill_and_reap(pid, result);
    if ((fault == Fault::io_error || fault == Fault::read_error) && !fail_call(pid, EIO, result)) return;
    if (fault == Fault::no_space && !fail_call(pid, ENOSPC, result)) return;
    if (fault == Fault::half_write)
      ::ptrace(PTRACE_POKEUSER, pid, offsetof(user_regs_struct, rdx),
               static_cast<long>((call.entry.args[2] + 1) / 2));
  }
}

/// Bytes of the child's memory.
std::string memory_of(pid_t pid, std::uint64_t at, std::size_t bytes) {
  std::string text(bytes, '\0');
  const iovec here{text.data(), bytes}, there{reinterpret_cast<void*>(at), bytes};
  const ssize_t n = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
  text.resize(n < 0 ? 0 : as_size(n));
  return text;
}

/// A path from the child's memory, which may end at a page that is not there.
std::string text_of(pid_t pid, std::uint64_t at) {
  std::string text;
  while (text.find('\0') == std::string::npos) {
    const std::string more = memory_of(pid, at + text.size(), 64 - (at + text.size()) % 64);
    if (more.empty()) break;
    text += more;
  }
  return text.substr(0, text.find('\0'));
}

/// What a child's arguments mean.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  std::string behind(std::uint64_t fd) const {
    std::error_code error;
    return std::filesystem::read_symlink(proc("fd/" + std::to_string(fd)), error).string();
  }
  std::string text(std::uint64_t at) const { return text_of(pid_, at); }
  std::string at(std::uint64_t fd, std::uint64_t name) const {
    const std::string path = text(name);
    return path.starts_with("/") || static_cast<int>(fd) == AT_FDCWD ? path : behind(fd) + "/" + path;
  }
  std::string proc(const std::string& name) const { return "/proc/" + std::to_string(pid_) + "/" + name; }

 private:
  pid_t pid_;
};

/// Calls that storage may refuse, by what they name.
struct StorageCall {
  enum class Names { path, path_at, descriptor };
  const char* name;
  Names names;
};
const std::map<long, StorageCall> storage_calls = {
    {SYS_open, {"open", StorageCall::Names::path}},
    {SYS_stat, {"stat", StorageCall::Names::path}},
    {SYS_lstat, {"lstat", StorageCall::Names::path}},
    {SYS_access, {"access", StorageCall::Names::path}},
    {SYS_mkdir, {"mkdir", StorageCall::Names::path}},
    {SYS_unlink, {"unlink", StorageCall::Names::path}},
    {SYS_rmdir, {"rmdir", StorageCall::Names::path}},
    {SYS_rename, {"rename", StorageCall::Names::path}},
    {SYS_statfs, {"statfs", StorageCall::Names::path}},
    {SYS_chmod, {"chmod", StorageCall::Names::path}},
    {SYS_openat, {"openat", StorageCall::Names::path_at}},
    {SYS_newfstatat, {"newfstatat", StorageCall::Names::path_at}},
    {SYS_statx, {"statx", StorageCall::Names::path_at}},
    {SYS_faccessat, {"faccessat", StorageCall::Names::path_at}},
    {SYS_mkdirat, {"mkdirat", StorageCall::Names::path_at}},
    {SYS_unlinkat, {"unlinkat", StorageCall::Names::path_at}},
    {SYS_renameat, {"renameat", StorageCall::Names::path_at}},
    {SYS_renameat2, {"renameat2", StorageCall::Names::path_at}},
    {SYS_utimensat, {"utimensat", StorageCall::Names::path_at}},
    {SYS_fstat, {"fstat", StorageCall::Names::descriptor}},
    {SYS_read, {"read", StorageCall::Names::descriptor}},
    {SYS_pread64, {"pread", StorageCall::Names::descriptor}},
    {SYS_write, {"write", StorageCall::Names::descriptor}},
    {SYS_pwrite64, {"pwrite", StorageCall::Names::descriptor}},
    {SYS_fsync, {"fsync", StorageCall::Names::descriptor}},
    {SYS_fdatasync, {"fdatasync", StorageCall::Names::descriptor}},
    {SYS_ftruncate, {"ftruncate", StorageCall::Names::descriptor}},
    {SYS_fallocate, {"fallocate", StorageCall::Names::descriptor}},
    {SYS_getdents64, {"getdents", StorageCall::Names::descriptor}},
    {SYS_close, {"close", StorageCall::Names::descriptor}}};

std::string path_of(const Child& child, const StorageCall& call, const __ptrace_syscall_info& info) {
  const auto& a = info.entry.args;
  switch (call.names) {
    case StorageCall::Names::path:
      return child.text(a[0]);
    case StorageCall::Names::path_at:
      return child.at(a[0], a[1]);
    case StorageCall::Names::descriptor:
      return child.behind(a[0]);
  }
  return {};
}

class Recorder {
 public:
  Recorder(pid_t pid, const std::filesystem::path& folder)
      : pid_(pid), child_(pid), folder_(folder.string()) {}

  /// What the call would do, as it is entered.
  void entered(const __ptrace_syscall_info& call) {
    pending_.reset();
    const auto& a = call.entry.args;
    switch (static_cast<long>(call.entry.nr)) {
      case SYS_openat:
        return opens(at(a[0], a[1]), a[2]);
      case SYS_open:
        return opens(text_of(pid_, a[0]), a[1]);
      case SYS_mkdir:
        return propose(Change::What::make_folder, text_of(pid_, a[0]));
      case SYS_mkdirat:
        return propose(Change::What::make_folder, at(a[0], a[1]));
      case SYS_unlink:
      case SYS_rmdir:
        return propose(Change::What::remove, text_of(pid_, a[0]));
      case SYS_unlinkat:
        return propose(Change::What::remove, at(a[0], a[1]));
      case SYS_rename:
        return renames(text_of(pid_, a[0]), text_of(pid_, a[1]), 0);
      case SYS_renameat:
        return renames(at(a[0], a[1]), at(a[2], a[3]), 0);
      case SYS_renameat2:
        return renames(at(a[0], a[1]), at(a[2], a[3]), a[4]);
      case SYS_fsync:
      case SYS_fdatasync:
        return propose(Change::What::sync, behind(a[0]));
      case SYS_ftruncate:
        return resizes(behind(a[0]), a[1]);
      case SYS_fallocate:
        return resizes(behind(a[0]), a[2] + a[3]);
      case SYS_pwrite64:
        return writes(a[0], a[1], a[2], static_cast<std::int64_t>(a[3]));
      case SYS_write:
        return writes(a[0], a[1], a[2], position(a[0]));
    }
  }
  /// It happened, or not.
  void left(const __ptrace_syscall_info& call) {
    if (!pending_ || call.exit.is_error) return;
    if (pending_->what == Change::What::write) pending_->data.resize(call.exit.rval);
    changes.push_back(std::move(*pending_));
    pending_.reset();
  }

  std::vector<Change> changes;

 private:
  std::string behind(std::uint64_t fd) const { return child_.behind(fd); }
  std::string at(std::uint64_t fd, std::uint64_t name) const { return child_.at(fd, name); }
  std::int64_t position(std::uint64_t fd) const {
    std::ifstream info(child_.proc("fdinfo/" + std::to_string(fd)));
    std::string word;
    std::int64_t position = 0;
    info >> word >> position;
    return position;
  }
  void propose(Change::What what, const std::string& path) {
    if (path == folder_)
      pending_ = Change{what, ""};
    else if (path.starts_with(folder_ + "/"))
      pending_ = Change{what, path.substr(folder_.size() + 1)};
  }
  void opens(const std::string& path, std::uint64_t flags) {
    if ((flags & O_CREAT) != 0 && !std::filesystem::exists(path)) return propose(Change::What::create, path);
    if ((flags & O_TRUNC) != 0) resizes(path, 0);
  }
  void resizes(const std::string& path, std::uint64_t size) {
    propose(Change::What::resize, path);
    if (pending_) pending_->offset = static_cast<std::int64_t>(size);
  }
  void renames(const std::string& from, const std::string& to, std::uint64_t flags) {
    propose((flags & RENAME_EXCHANGE) != 0 ? Change::What::exchange : Change::What::rename, from);
    if (pending_) pending_->to = to.substr(folder_.size() + 1);
  }
  void writes(std::uint64_t fd, std::uint64_t from, std::uint64_t bytes, std::int64_t offset) {
    const std::string path = behind(fd);
    propose(Change::What::write, path);
    if (path == "/dev/null") pending_ = Change{Change::What::mark, ""};
    if (pending_) {
      pending_->offset = offset;
      pending_->data = memory_of(pid_, from, bytes);
    }
  }

  pid_t pid_;
  Child child_;
  std::string folder_;
  std::optional<Change> pending_;
};

/// A child that has stopped before `body`, or nothing.
pid_t traced_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSTOPPED(status)) return -1;
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, static_cast<long>(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD));
  return pid;
}

}  // namespace

Traced run_traced(const std::function<int()>& body, int at, Fault fault) {
  Traced result;
  const pid_t pid = traced_child(body);
  if (pid < 0) return result;
  result.traced = true;
  watch(pid, at, fault, result);
  return result;
}

Traced run_failing(const std::filesystem::path& folder, const std::function<int()>& body, int at, int error) {
  Traced result;
  const pid_t pid = traced_child(body);
  if (pid < 0) return result;
  result.traced = true;
  const Child child(pid);
  while (next_stop(pid, result)) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
      continue;
    const auto call = storage_calls.find(static_cast<long>(info.entry.nr));
    if (call == storage_calls.end()) continue;
    const std::string path = path_of(child, call->second, info);
    if (path != folder.string() && !path.starts_with(folder.string() + "/")) continue;
    if (result.calls++ != at) continue;
    result.struck = call->second.name + std::string(" ") + path.substr(folder.string().size());
    if (!fail_call(pid, error, result)) break;
  }
  return result;
}

std::vector<Change> record_changes(const std::filesystem::path& folder, const std::function<int()>& body,
                                   int& exit_code) {
  const pid_t pid = traced_child(body);
  if (pid < 0) return {};
  Recorder recorder(pid, folder);
  Traced result;
  while (next_stop(pid, result)) {
    __ptrace_syscall_info call{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) <= 0) continue;
    if (call.op == PTRACE_SYSCALL_INFO_ENTRY) recorder.entered(call);
    if (call.op == PTRACE_SYSCALL_INFO_EXIT) recorder.left(call);
  }
  exit_code = result.exit_code;
  return std::move(recorder.changes);
}

}  // namespace holdfast::test
