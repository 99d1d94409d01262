#pragma once
// What an agent sees on its node that may explain a failure. Never blocks: what may wait for a device or a
// file system is looked at in threads of its own.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/sign_sources.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"
#include "src/control/loop.hpp"
#include "src/control/worker.hpp"
#include "src/nvml/library.hpp"

namespace holdfast::launcher {

/// Where to look. What is empty or missing is not looked at.
struct SignPlaces {
  std::filesystem::path shared;              ///< the run directory
  std::vector<std::filesystem::path> local;  ///< file systems of the node
  std::filesystem::path memory_counter;      ///< memory.events or memory.oom_control
  std::filesystem::path kernel_log;          ///< /dev/kmsg
  std::vector<std::string> interfaces;       ///< of the network
  std::vector<std::string> devices;          ///< RDMA
  std::filesystem::path rdma = "/sys/class/infiniband";
  std::string nvml = holdfast::nvml::default_library;
  std::filesystem::path injected;  ///< signs of a drill
};
/// This node's. In a run whose drill.allowed is set, HOLDFAST_SIGNS names the file of injected signs; %N in
/// it stands for the node's name.
SignPlaces sign_places(const RunDir& run, const std::string& node, const config::RunConfig& config,
                       const config::ClusterFacts& cluster);

class Signs {
 public:
  Signs(control::Loop& loop, const SignPlaces& places);
  ~Signs();

  /// What is new since the last call; to be called every second or two.
  std::vector<control::Sign> look();
  /// The same at a rank's end, and what concerns this rank: an OOM kill that took it, and its last words
  /// where they say more than its status. To be sent before the end itself. `status`: exit code, 128 + signal
  /// or -1; `said`: the words that it gave as a reason, or last_words() of its log, or "".
  std::vector<control::Sign> at_exit(int rank, int status, const std::string& said);

 private:
  struct Slow;
  void take(std::vector<control::Sign> signs);
  void take_kills();
  void watch_shared();
  std::vector<control::Sign> found();

  struct Found {
    control::Sign sign;
    Clock::time_point at;
  };
  MemoryKills memory_;
  std::vector<std::unique_ptr<SignSource>> quick_;
  std::vector<std::unique_ptr<Slow>> slow_;
  std::filesystem::path shared_;
  bool shared_silent_ = false;
  std::vector<Found> found_;
  std::int64_t kills_ = 0;  ///< OOM kills that no rank's end has claimed yet, ...
  std::string kills_text_;
  Clock::time_point kills_at_;  ///< ... the last of them
};

/// In messages that the codec takes: it refuses one that holds more than 256 signs, all of them.
std::vector<control::NodeSigns> messages_of(const std::vector<control::Sign>& signs);

/// The end of a text file, for at_exit(); "" when it cannot be read. May wait for its file system.
std::string last_words(const std::filesystem::path& log);

}  // namespace holdfast::launcher
