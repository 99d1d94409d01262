#include "src/base/sandbox.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/error.hpp"

namespace holdfast {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t processor = 0;
constexpr const char* why_none = "the program was built with a sanitizer";
#elif defined(__x86_64__)
constexpr std::uint32_t processor = AUDIT_ARCH_X86_64;
constexpr const char* why_none = "";
#elif defined(__aarch64__)
constexpr std::uint32_t processor = AUDIT_ARCH_AARCH64;
constexpr const char* why_none = "";
#else
constexpr std::uint32_t processor = 0;
constexpr const char* why_none = "the calls of this processor are not known";
#endif

/// A call that is let through: always, or by the low half of one of its arguments.
struct Allowed {
  enum class If { always, equal, without };
  long call;
  If condition = If::always;
  unsigned argument = 0;
  std::uint32_t value = 0;  ///< what it is, or bits of which it has none
};

std::vector<Allowed> calls_of_a_reader(int pipe) {
  using enum Allowed::If;
  const auto own = static_cast<std::uint32_t>(::getpid());
  constexpr std::uint32_t changes = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
  constexpr std::uint32_t but_flags = ~std::uint32_t{F_DUPFD | F_GETFD | F_SETFD | F_GETFL};
  return {
#ifdef SYS_open
      {SYS_open, without, 1, changes},
#endif
#ifdef SYS_stat
      {SYS_stat},
      {SYS_lstat},
#endif
#ifdef SYS_readlink
      {SYS_readlink},
#endif
      {SYS_openat, without, 2, changes},
      {SYS_close},
      {SYS_read},
      {SYS_readv},
      {SYS_pread64},
      {SYS_preadv},
      {SYS_lseek},
      {SYS_fstat},
      {SYS_newfstatat},
      {SYS_readlinkat},
      {SYS_getcwd},
      {SYS_fcntl, without, 1, but_flags},
      {SYS_write, equal, 0, static_cast<std::uint32_t>(pipe)},
      {SYS_mmap, without, 2, PROT_EXEC},
      {SYS_mprotect, without, 2, PROT_EXEC},
      {SYS_mremap},
      {SYS_munmap},
      {SYS_madvise},
      {SYS_brk},
      {SYS_futex},
      {SYS_clock_gettime},
      {SYS_gettimeofday},
      {SYS_getrandom},
      {SYS_getpid},
      {SYS_gettid},
      {SYS_sysinfo},
      {SYS_sched_yield},
      {SYS_rt_sigaction},
      {SYS_rt_sigprocmask},
      {SYS_rt_sigreturn},
      {SYS_tgkill, equal, 0, own},  // abort()
      {SYS_exit},
      {SYS_exit_group},
  };
}

std::vector<sock_filter> filter_of(const std::vector<Allowed>& calls) {
  constexpr std::uint32_t let = SECCOMP_RET_ALLOW, refuse = SECCOMP_RET_ERRNO | EPERM;
  const auto statement = [](unsigned code, std::uint32_t k) -> sock_filter {
    return {static_cast<std::uint16_t>(code), 0, 0, k};
  };
  const auto jump = [](unsigned code, std::uint32_t k, std::uint8_t so,
                       std::uint8_t otherwise) -> sock_filter {
    return {static_cast<std::uint16_t>(code), so, otherwise, k};
  };
  constexpr unsigned load = BPF_LD | BPF_W | BPF_ABS, end = BPF_RET | BPF_K;
  constexpr unsigned if_equal = BPF_JMP | BPF_JEQ | BPF_K, if_any_bit = BPF_JMP | BPF_JSET | BPF_K;
  // Numbers mean other calls where a process leaves its own mode, and x32's have a bit that none here has.
  std::vector<sock_filter> filter = {statement(load, offsetof(seccomp_data, arch)),
                                     jump(if_equal, processor, 1, 0), statement(end, refuse),
                                     statement(load, offsetof(seccomp_data, nr))};
  for (const Allowed& call : calls) {
    const auto number = static_cast<std::uint32_t>(call.call);
    if (call.condition == Allowed::If::always) {
      filter.push_back(jump(if_equal, number, 0, 1));
    } else {
      const auto at = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * call.argument);
      filter.push_back(jump(if_equal, number, 0, 4));
      filter.push_back(statement(load, at));
      filter.push_back(call.condition == Allowed::If::equal ? jump(if_equal, call.value, 1, 0)
                                                            : jump(if_any_bit, call.value, 0, 1));
      filter.push_back(statement(end, refuse));
    }
    filter.push_back(statement(end, let));
  }
  filter.push_back(statement(end, refuse));
  return filter;
}

}  // namespace

std::optional<std::string> enter_reading_sandbox(int pipe) {
  if (processor == 0) return why_none;
  std::vector<sock_filter> filter = filter_of(calls_of_a_reader(pipe));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
    return system_error("seccomp cannot be used", errno).what();
  return std::nullopt;
}

}  // namespace holdfast
