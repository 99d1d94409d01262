#pragma once
// What SLURM's accounting allows a user: accounts, qualities of service (QOS), and their limits. For
// `holdfast avail`.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::slurm {

/// As SLURM writes them: "2", "node=2", "1-00:00:00".
struct Limit {
  std::string value;
  std::string used;  ///< of it, now; "": SLURM does not count it, or has not been asked
  bool operator==(const Limit&) const = default;
};

/// Limits of an account or of a QOS, by sacctmgr's names: "MaxTRES".
struct Limits {
  std::string account, partition;  ///< no account: of a QOS; no partition: in all
  std::string qos;
  bool shared = false;  ///< all users of the account, and of accounts below it, count together
  std::map<std::string, Limit> limits;
};

/// An association, as slurmctld has it.
struct Association {
  std::string account, partition, parent;
  std::string user;  ///< "": of the account itself
  bool is_default = false;
  std::map<std::string, Limit> limits;  ///< those that are set, here or above
};

struct Accounts {
  /// That jobs of this user may name, the default first. Nothing: jobs need none here, or it is unknown.
  std::optional<std::vector<std::string>> accounts;
  std::vector<std::string> qos;  ///< that they may name
  std::vector<Limits> limits;    ///< that hold for them, where SLURM enforces limits
};

// Replies, read into plain data: pure. What cannot be read is left out.
std::vector<Association> read_associations(std::string_view out);
/// A QOS without any limit is left out.
std::vector<Limits> read_qos_limits(std::string_view out);

/// Asks SLURM, each question for at most `limit`. `user`: whose. Questions that fail, and why, go to
/// `unknown`.
Accounts accounts_of(const std::string& user, std::chrono::milliseconds limit,
                     std::vector<std::string>& unknown);

}  // namespace holdfast::slurm
