#pragma once
// The testbed of a real drill: this user's cluster, or a minipod of root. Every command for a minipod runs
// inside it (`minipod exec`), and its shared folder is read from outside.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/drill/runner.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {

struct LiveOptions {
  std::filesystem::path program;  ///< `holdfast`, for the cluster of this machine
  std::filesystem::path
      trainer;                ///< `holdfast-train`, likewise; "" with a minipod, whose nodes have their own
  std::filesystem::path job;  ///< job file
  std::vector<std::string> sets;  ///< of the command line; they override the drill file's
  std::filesystem::path minipod;  ///< its DIR; "": none
  /// Folder of the runs, on the shared file system; in a minipod below its shared/.
  std::filesystem::path work;
};

class LiveTestbed : public Testbed {
 public:
  /// Throws Error (usage) when there is no such minipod, or the folder is not where the cluster sees it.
  explicit LiveTestbed(LiveOptions options);

  double now() override;
  void wait(Millis duration) override;
  void heal() override;
  std::string submit(const std::string& name, const std::vector<std::string>& sets) override;
  std::string run_path(const std::string& name) override { return path_of(name).string(); }
  void hold(const std::string& name, double least_step_s, double longest_s) override;
  void release(const std::string& name) override;
  RunView view(const std::string& name) override;
  Job job(const std::string& id) override;
  void start_now(const std::string& id) override;
  void cancel(const std::string& id) override;
  double inject(const ChosenFault& what, const std::string& name, const std::string& id) override;
  bool every_step_once(const std::string& name, std::int64_t steps) override;
  std::optional<Baseline> known_baseline(const std::vector<std::string>& sets, std::string& name) override;

 private:
  std::vector<std::string> in_cluster(std::vector<std::string> argv) const;
  /// A path below the minipod's shared folder, as its nodes name it.
  std::filesystem::path inside(const std::filesystem::path& path) const;
  std::string program() const;
  /// Which build of the trainer the cluster runs, as a checksum of its bytes. Read once.
  const std::string& trainer_identity();
  std::string must(const std::vector<std::string>& argv, std::chrono::seconds limit,
                   const std::string& what) const;
  std::filesystem::path path_of(const std::string& name) const { return (at_ / name).lexically_normal(); }
  void make_folder(const std::filesystem::path& path) const;
  config::RunConfig config_with(const std::vector<std::string>& sets) const;
  double minipod_verb(const std::string& verb, const std::vector<std::string>& nodes);
  double kill_agents(const std::string& node) const;
  double inject_through_agent(const ChosenFault& what, const RunDir& run);
  double damage_newest(const RunDir& run, std::uint64_t seed) const;
  void slurm_act(const std::string& act, const std::string& id);

  LiveOptions options_;
  std::string script_;        ///< minipod's, "" without one
  std::string trainer_;       ///< its identity; "": not read yet
  std::filesystem::path at_;  ///< folder of this drill's runs
};

}  // namespace holdfast::launcher
