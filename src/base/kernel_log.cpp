#include "src/base/kernel_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace holdfast {

KernelLogFile open_kernel_log(const std::filesystem::path& device) {
  KernelLogFile log{files::Fd(::open(device.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)), "", ""};
  int error = log.file ? 0 : errno;
  char record[8192];
  // Some kernels of containers refuse the read.
  if (log.file && ::read(log.file.get(), record, sizeof record) < 0 && errno != EAGAIN && errno != EPIPE)
    error = errno;
  if (error == 0) return log;
  log.file = files::Fd();
  log.why = fmt::format("{} cannot be read ({})", device.string(), std::strerror(error));
  log.advice = error == ENOENT
                   ? "In a container: pass the device in?"
                   : "Set sysctl kernel.dmesg_restrict=0 (Ubuntu sets 1), or give the job CAP_SYSLOG; in "
                     "a container, allow the device?";
  return log;
}

}  // namespace holdfast
