#pragma once
// The field of a real campaign: this user's cluster, or a minipod whose root we are. A minipod is stepped
// into for every command (`minipod exec`), and its shared folder is read from outside.
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
  std::vector<std::string> sets;  ///< of the command line: above the campaign's
  std::filesystem::path minipod;  ///< its DIR; "": none
  std::filesystem::path
      work;  ///< folder of the runs, on the shared file system; in a minipod below its shared/
};

class LiveField : public Field {
 public:
  /// Throws Error (usage) when there is no such minipod, or the folder is not where the cluster sees it.
  explicit LiveField(LiveOptions options);

  double now() override;
  void wait(Millis duration) override;
  void heal() override;
  std::string submit(const std::string& name, const std::vector<std::string>& sets) override;
  std::string place_of(const std::string& name) override { return path_of(name).string(); }
  void hold(const std::string& name, double least_step_s, double longest_s) override;
  void let_go(const std::string& name) override;
  View look(const std::string& name) override;
  Job job(const std::string& id) override;
  void hurry(const std::string& id) override;
  void cancel(const std::string& id) override;
  double strike(const Strike& what, const std::string& name, const std::string& id) override;
  bool every_step_once(const std::string& name, std::int64_t steps) override;
  std::optional<Baseline> known_baseline(const std::vector<std::string>& sets, std::string& name) override;

 private:
  std::vector<std::string> in_cluster(std::vector<std::string> argv) const;
  /// A path below the minipod's shared folder, as its nodes name it.
  std::filesystem::path inside(const std::filesystem::path& path) const;
  std::string program() const;
  /// Which build of the trainer the cluster runs: of its bytes. Asked once.
  const std::string& trainer_identity();
  std::string must(const std::vector<std::string>& argv, std::chrono::seconds limit,
                   const std::string& what) const;
  std::filesystem::path path_of(const std::string& name) const { return (at_ / name).lexically_normal(); }
  void make_folder(const std::filesystem::path& path) const;
  config::RunConfig config_with(const std::vector<std::string>& sets) const;
  double minipod_verb(const std::string& verb, const std::vector<std::string>& nodes);
  double kill_agents(const std::string& node) const;
  double inject(const Strike& what, const RunDir& run);
  double damage_newest(const RunDir& run, std::uint64_t seed) const;
  void slurm_act(const std::string& act, const std::string& id);

  LiveOptions options_;
  std::string script_;        ///< minipod's, "" without one
  std::string trainer_;       ///< its identity; "": not asked yet
  std::filesystem::path at_;  ///< folder of this campaign's runs
};

}  // namespace holdfast::launcher
