#pragma once
// The signs that an agent sees on its node and that may explain a failure. Never blocks: sources that may
// block on a device or a file system are polled in threads of their own.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/signs/sign_sources.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"
#include "src/control/loop.hpp"
#include "src/control/worker.hpp"
#include "src/nvml/library.hpp"

namespace holdfast::launcher {

/// The sources. Those that are empty or missing are not polled.
struct SignPlaces {
  std::filesystem::path shared;   ///< the run directory
  std::filesystem::path touched;  ///< a file there that is touched, to see whether it can be written
  std::vector<std::filesystem::path> local;  ///< file systems of the node
  std::filesystem::path memory_counter;      ///< memory.events or memory.oom_control
  std::filesystem::path kernel_log;          ///< /dev/kmsg
  std::vector<std::string> interfaces;       ///< of the network
  std::vector<std::string> devices;          ///< RDMA
  std::filesystem::path rdma = "/sys/class/infiniband";
  std::filesystem::path sys = "/sys";  ///< where the rates of links are read
  std::string nvml = holdfast::nvml::default_library;
  std::filesystem::path injected;  ///< signs of a drill
};
/// Those of this node. In a run with drill.allowed, HOLDFAST_SIGNS names the file of injected signs, and
/// HOLDFAST_SYS what takes the place of /sys; %N in them stands for the node's name.
SignPlaces sign_places(const RunDir& run, const std::string& node, const config::RunConfig& config,
                       const config::ClusterFacts& cluster);

class Signs {
 public:
  Signs(control::Loop& loop, const SignPlaces& places);
  ~Signs();

  /// Ranks of this attempt are started: what is seen from now on is about it, and what has been seen is not.
  void attempt_begins(int attempt);
  /// The signs since the last call; to be called every second or two.
  std::vector<control::Sign> poll();
  /// What a leader has to know that was not there when it was sent: shared storage does not answer.
  std::vector<control::Sign> standing() const;
  /// The same at a rank's end, and signs of this rank: an OOM kill that ended it, and the end of its log
  /// where it says more than its status. To be sent before the end itself. `status`: exit code, 128 + signal
  /// or -1; `said`: the reason that it reported, or log_tail() of its log, or "".
  std::vector<control::Sign> at_exit(int rank, int attempt, int status, const std::string& said);

 private:
  struct Slow;
  void take(std::vector<control::Sign> signs);
  void take_kills();
  void watch_shared();
  void found_now(control::Sign sign);
  std::vector<control::Sign> found();

  struct Found {
    control::Sign sign;
    Clock::time_point at;
  };
  control::Loop& loop_;
  MemoryKills memory_;
  std::vector<std::unique_ptr<SignSource>> quick_;
  std::vector<std::unique_ptr<Slow>> slow_;
  std::filesystem::path shared_;
  bool shared_silent_ = false;
  std::vector<Found> found_;
  int attempt_ = 0;         ///< whose ranks were started last
  std::int64_t kills_ = 0;  ///< OOM kills of that time that were not assigned to the end of a rank yet, ...
  std::string kills_text_;
  Clock::time_point kills_at_;  ///< ... the last of them
};

/// Splits them into messages: the codec refuses one with more than 256 signs.
std::vector<control::NodeSigns> messages_of(const std::vector<control::Sign>& signs);

/// The end of a text file, for at_exit(); "" when it cannot be read. May block on its file system.
std::string log_tail(const std::filesystem::path& log);

}  // namespace holdfast::launcher
