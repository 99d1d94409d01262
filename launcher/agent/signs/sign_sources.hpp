#pragma once
// The sources of a node's signs. Each is polled periodically and returns the new signs; none throws, and a
// source that the node does not have returns none. Those that may block on a device or a file system are
// polled in a worker thread.
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/kernel_log.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class SignSource {
 public:
  virtual ~SignSource() = default;
  /// The signs since the last call.
  virtual std::vector<control::Sign> poll() = 0;
  /// This node does not have the source: it need not be polled again.
  virtual bool absent() const { return false; }
};

/// Processes of this control group that the kernel has ended because memory ran out: memory.events (v2) or
/// memory.oom_control (v1).
class MemoryKills : public SignSource {
 public:
  /// `counter`: the file; "": there is none.
  explicit MemoryKills(std::filesystem::path counter);
  std::vector<control::Sign> poll() override;
  bool counts() const { return known_.has_value(); }

 private:
  std::optional<std::int64_t> read() const;
  std::filesystem::path counter_;
  std::optional<std::int64_t> known_;
};
/// The counter of the group that a process is in, by its /proc/PID/cgroup; "" when there is none.
std::filesystem::path memory_counter_of(const std::filesystem::path& proc_cgroup,
                                        const std::filesystem::path& mount);

/// Less than a thousandth is free, or less than a MiB, or no inode.
bool file_system_is_full(double bytes_left, double bytes, bool inodes_left);
/// Reports file systems of the node that become full.
class LocalSpace : public SignSource {
 public:
  explicit LocalSpace(std::vector<std::filesystem::path> folders) : folders_(std::move(folders)) {}
  std::vector<control::Sign> poll() override;

 private:
  std::vector<std::filesystem::path> folders_;
  std::map<std::filesystem::path, bool> full_;
};

/// New lines of the kernel's log, where this user may read it.
class KernelLog : public SignSource {
 public:
  explicit KernelLog(const std::filesystem::path& device) : log_(open_kernel_log(device)) {
    if (log_.file) ::lseek(log_.file.get(), 0, SEEK_END);
  }
  std::vector<control::Sign> poll() override;
  /// Why it cannot be read; "": it can.
  const std::string& unread() const { return log_.why; }
  const std::string& advice() const { return log_.advice; }

 private:
  KernelLogFile log_;
};

/// Reports that the node's clock was set: its time and its uptime differ by more than a second since the last
/// poll.
class ClockJumps : public SignSource {
 public:
  ClockJumps(std::function<double()> steady_now, std::function<double()> unix_now);
  std::vector<control::Sign> poll() override;

 private:
  std::function<double()> steady_now_, unix_now_;
  double at_, unix_at_;
};

/// `unknown`: the kernel could not be asked, for want of a descriptor or by an error of the driver; it says
/// nothing about the link.
enum class LinkState { up, down, absent, unknown };
/// Reports when network interfaces and RDMA ports that training needs go down and come back.
class Links : public SignSource {
 public:
  using InterfaceState = std::function<LinkState(const std::string& name)>;
  /// `rdma`: /sys/class/infiniband.
  Links(std::vector<std::string> interfaces, std::vector<std::string> devices, std::filesystem::path rdma,
        InterfaceState interface_state);
  std::vector<control::Sign> poll() override;

 private:
  void note(std::vector<control::Sign>& out, const std::string& name, LinkState state);
  void poll_ports(std::vector<control::Sign>& out, const std::string& device);
  std::vector<std::string> interfaces_, devices_;
  std::filesystem::path rdma_;
  InterfaceState interface_state_;
  std::map<std::string, bool> up_;  ///< links that have existed
};
/// Reports a link that runs at less than its rate: than it had when it was first seen up, or, of a named RDMA
/// device, than the best of the others. Once it stays there for `polls_in_a_row`, and again when it had its
/// rate back in between. Sign::code: per cent of the rate that are left.
class LinkRates : public SignSource {
 public:
  static constexpr int polls_in_a_row = 2;  ///< a link may be trained again

  /// `sys`: /sys. Without `devices`, all RDMA devices are looked at, each by itself: some may be of another
  /// kind.
  LinkRates(std::vector<std::string> interfaces, std::vector<std::string> devices, std::filesystem::path sys);
  std::vector<control::Sign> poll() override;

 private:
  struct Link {
    double rate = 0;  ///< Mbit/s, that it is to have
    int below = 0;    ///< polls in a row
  };
  std::map<std::string, double> read() const;
  std::vector<std::string> interfaces_, devices_;
  std::filesystem::path sys_;
  std::map<std::string, Link> links_;
};
/// Asks the kernel for this network namespace, which /sys may not show.
LinkState state_of_interface(const std::string& name);

/// Does the run directory exist, can it be written, and is there free space? A file system that does not
/// answer blocks poll(), which the caller notices; where this process has no descriptor to look with, nothing
/// is reported. `touched`: a file there, made if it is missing, whose time
/// is set to see whether a change is taken: a name may be known here, and a file system may be frozen for
/// those who write. "": none.
class SharedFolder : public SignSource {
 public:
  explicit SharedFolder(std::filesystem::path folder, std::filesystem::path touched = {})
      : folder_(std::move(folder)), touched_(std::move(touched)) {}
  std::vector<control::Sign> poll() override;

 private:
  /// 0, or an errno.
  int error_of_touch() const;
  std::filesystem::path folder_, touched_;
  bool gone_ = false, full_ = false;
};

/// Signs of simulated hardware in drills: lines {"kind", "code", "rank", "text"} that are appended to a file.
class InjectedSigns : public SignSource {
 public:
  explicit InjectedSigns(std::filesystem::path file);
  std::vector<control::Sign> poll() override;

 private:
  std::filesystem::path file_;
  std::uint64_t read_ = 0;
};

}  // namespace holdfast::launcher
