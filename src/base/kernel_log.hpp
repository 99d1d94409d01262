#pragma once
// The kernel's log, /dev/kmsg. Many systems do not let users read it (kernel.dmesg_restrict is 1, as on
// Ubuntu), and many containers do not have it.
#include <filesystem>
#include <string>

#include "src/base/files.hpp"

namespace holdfast {

struct KernelLogFile {
  files::Fd file;      ///< not set: it cannot be read
  std::string why;     ///< then: "/dev/kmsg cannot be read (Operation not permitted)"
  std::string advice;  ///< and what would help
};
/// Opens it for reads that do not wait.
KernelLogFile open_kernel_log(const std::filesystem::path& device);
/// What cannot be seen without it, in words.
inline constexpr const char* unseen_without_kernel_log =
    "machine checks, failed network adapters, read-only disks, NVSwitch errors (SXid) and the registers of "
    "NVLink "
    "errors are not seen";

}  // namespace holdfast
