#include "tests/checkpoint/traced.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <map>

namespace holdfast::checkpoint::testing {
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
    if (fault == Fault::half_write ? !is_write : known == changing_calls.end() && !creates(call)) continue;
    if (result.calls++ != at) continue;
    result.struck = known == changing_calls.end() ? "open" : known->second;
    if (fault == Fault::kill) return kill_and_reap(pid, result);
    if (fault == Fault::io_error && !fail_call(pid, EIO, result)) return;
    if (fault == Fault::no_space && !fail_call(pid, ENOSPC, result)) return;
    if (fault == Fault::half_write)
      ::ptrace(PTRACE_POKEUSER, pid, offsetof(user_regs_struct, rdx),
               static_cast<long>((call.entry.args[2] + 1) / 2));
  }
}

}  // namespace

Traced run_traced(const std::function<int()>& body, int at, Fault fault) {
  Traced result;
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSTOPPED(status)) return result;
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, static_cast<long>(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD));
  result.traced = true;
  watch(pid, at, fault, result);
  return result;
}

}  // namespace holdfast::checkpoint::testing
