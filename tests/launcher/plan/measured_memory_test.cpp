// What the plan says of host memory is what ranks take: real ranks train, on the CPU and on the simulated
// GPU, in every strategy and with every level of snapshots, and the kernel is asked for their memory
// meanwhile.
//
// Counted are anonymous pages and those of shared memory (memfd, /dev/shm), each shared page once; what the
// simulator pins is among them, the memory of the simulated GPU itself is not. The parts that are stated
// upper bounds are left out: what a rank takes besides the parts that are computed is measured with a smaller
// model, and taken off. Plan and measurement may differ by one percent, and by one staging buffer a rank: of
// the two that saves have, a quick save touches one. The kernel gives no huge pages meanwhile: how many it
// has to give, and so how much memory is taken that nobody touches, depends on what ran before.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <sstream>
#include <thread>

#include "checkpoint/index/catalog.hpp"
#include "launcher/plan/host_memory.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/topology.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/rank_env.hpp"
#include "src/config/load.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::launcher {
namespace {

/// Of one process, by /proc/PID/smaps: of a page that n processes share it counts an nth.
std::int64_t host_bytes_of(const std::string& pid) {
  std::ifstream smaps("/proc/" + pid + "/smaps");
  std::int64_t bytes = 0;
  std::string counted;  // what of a mapping counts: of a file only what this process alone has written to
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string word, permissions, offset, device, inode, path;
    words >> word;
    if (!word.ends_with(':')) {  // the head of a mapping: its addresses
      words >> permissions >> offset >> device >> inode >> path;
      const auto begins = [&](const char* what) { return path.starts_with(what); };
      const bool host =
          path.empty() || begins("[") || begins("/memfd:") || begins("/dev/shm/") || begins("/dev/zero");
      counted = begins("/memfd:holdfast-sim-gpu") ? "" : host ? "Pss:" : "Anonymous:";
    } else if (word == counted) {
      std::int64_t kib = 0;
      words >> kib;
      bytes += kib << 10;
    }
  }
  return bytes;
}

/// Of processor time that a process has used, by /proc/PID/stat (fields 14 and 15, proc(5)).
std::int64_t ticks_of(const std::string& pid) {
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string text;
  std::getline(stat, text);
  std::istringstream after_name(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  for (int field = 3; field < 14; ++field) after_name >> text;
  std::int64_t user = 0, system = 0;
  after_name >> user >> system;
  return user + system;
}

/// One of its threads waits for a disk: state D (proc(5)).
bool waits_for_disk(const std::string& pid) {
  for (const std::string& thread : files::list("/proc/" + pid + "/task")) {
    std::ifstream stat("/proc/" + pid + "/task/" + thread + "/stat");
    std::string text;
    std::getline(stat, text);
    const auto name_ends = text.rfind(") ");
    if (name_ends != std::string::npos && text[name_ends + 2] == 'D') return true;
  }
  return false;
}

constexpr std::int64_t staging_buffer = 2 << 20;

class MeasuredMemory : public train::TrainingFixture {
 protected:
  struct World {
    bool gpu = false;
    int nodes = 1, ranks_per_node = 1;
    int ranks() const { return nodes * ranks_per_node; }
    auto operator<=>(const World&) const = default;
  };

  void SetUp() override {
    TrainingFixture::SetUp();
    ASSERT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);  // children inherit it
    env::set("HOLDFAST_CUDA_MODULE", HOLDFAST_SIM_MODULE);
    env::set("HOLDFAST_SHARE_GPU", "1");
    env::set("OMPI_MCA_mpi_yield_when_idle", "1");
    env::set("MALLOC_MMAP_THRESHOLD_", "65536");  // what is freed is given back to the kernel
    env::set("MALLOC_TRIM_THRESHOLD_", "65536");
    snapshots_ = "/dev/shm/hf-test-" + std::to_string(::getpid());
    std::filesystem::create_directory(snapshots_);
  }
  void TearDown() override {
    std::filesystem::remove_all(snapshots_);
    TrainingFixture::TearDown();
  }

  /// As wide as HOLDFAST_MEMORY_SCALE says, where one percent should be more than a huge page.
  void write_model(const std::string& name, int layers, int width, int ffn) const {
    const auto scale = env::get_integer("HOLDFAST_MEMORY_SCALE").value_or(1);
    write(name + ".toml", fmt::format("[model]\nname = \"{}\"\nvocabulary = 128\nheads = 8\nkv_heads = 4\n"
                                      "max_sequence = 64\nlayers = {}\nwidth = {}\nffn = {}\n",
                                      name, layers, scale * width, scale * ffn));
  }

  config::RunConfig config_of(const World& world, const std::string& model, const Sets& sets) const {
    Sets all = {"model.file=" + path(model),
                "cluster.nodes=" + std::to_string(world.nodes),
                "cluster.ranks_per_node=" + std::to_string(world.ranks_per_node),
                std::string("train.device=") + (world.gpu ? "cuda" : "cpu"),
                "train.steps=3",
                "train.sequence=8",
                "train.global_batch=4",
                "train.micro_batch=1",
                "train.lanes=4",
                "data.read_ahead_mb=1",
                "checkpoint.every=1",
                "checkpoint.keep=1",
                "checkpoint.local=none",
                "drill.allowed=true",
                "trace.flight_recorder=false",  // agents would remove the records
                "checkpoint.network=lo"};
    all.insert(all.end(), sets.begin(), sets.end());
    return config::load(path("job.toml"), all).config;
  }
  static config::ClusterFacts facts_of(const World& world) {
    config::ClusterFacts facts;
    facts.name = "here";
    facts.gpu = world.gpu ? "simulated" : "none";
    facts.gpus_per_node = world.ranks_per_node;
    for (int i = 0; i < world.ranks_per_node; ++i) facts.gpus.push_back({i, "", "", 0, i});
    facts.control_interface = "lo";
    facts.scalable_units = {{"su1", "n[1-2]"}};
    return facts;
  }

  static HostMemory planned(const config::RunConfig& config, const World& world) {
    const auto facts = facts_of(world);
    return make_plan(config, config::model_of(config), facts, hypothetical_nodes(facts, world.nodes, 0),
                     std::nullopt)
        .host;
  }
  /// Of all nodes. What is left out: bounds, and what only a network between nodes takes.
  static std::int64_t computed(const HostMemory& memory, const World& world) {
    std::int64_t sum = 0;
    for (const HostPart& part : memory.parts)
      if (!part.bound && part.name != "pieces from other nodes") sum += part.bytes;
    return sum * world.nodes;
  }

  static double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

  /// As agents would start them: `ranks_per_node` of them take themselves for a node.
  Command ranks_on_nodes(const World& world, const std::filesystem::path& dir, bool local) const {
    Command command;
    command.argv = {HOLDFAST_MPIEXEC};
    for (int rank = 0; rank < world.ranks(); ++rank) {
      RankEnv place;
      place.rank = rank;
      place.world = world.ranks();
      place.local_rank = rank % world.ranks_per_node;
      place.ranks_per_node = world.ranks_per_node;
      place.term = place.attempt = 1;
      place.run_dir = dir;
      if (local) place.local_level = snapshots_ + "/of-the-run";
      auto& argv = command.argv;
      if (rank > 0) argv.push_back(":");
      argv.insert(argv.end(), {"-n", "1", "--oversubscribe", "--bind-to", "none", "/usr/bin/env"});
      for (const auto& variable : to_variables(place)) argv.push_back(variable);
      argv.insert(argv.end(), {HOLDFAST_TRAIN, "--run-dir", dir.string()});
    }
    return command;
  }

  struct Reading {
    std::int64_t bytes = 0, ticks = 0;  // of host memory, and of processors that worked
    bool disk = false;                  ///< a rank waits for it
    std::vector<int> processes;         ///< of the ranks
    Clock::time_point at = Clock::now();
    /// Ranks that are held look now and then whether they still are.
    bool idle_since(const Reading& last, int ranks) const {
      const double worked =
          static_cast<double>(ticks - last.ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
      return !disk && worked < 0.2 * ranks * std::chrono::duration<double>(at - last.at).count();
    }
  };

  static Reading read_ranks(const std::string& dir) {
    Reading out;
    for (const std::string& pid : files::list("/proc")) {
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file("/proc/" + pid + "/cmdline");
      std::string program, argument;
      std::getline(file, program, '\0');
      if (program != HOLDFAST_TRAIN) continue;
      while (std::getline(file, argument, '\0') && argument != dir) continue;
      if (argument != dir) continue;
      out.processes.push_back(std::stoi(pid));
      out.bytes += host_bytes_of(pid);
      out.ticks += ticks_of(pid);
      out.disk = out.disk || waits_for_disk(pid);
    }
    return out;
  }

  /// A save is written out at the same time as the step after it is done.
  static bool committed(const std::filesystem::path& checkpoints) {
    const auto steps = files::list(checkpoints);
    return std::any_of(steps.begin(), steps.end(), [&](const std::string& step) {
      return std::filesystem::exists(checkpoints / step / checkpoint::manifest_file_name);
    });
  }

  /// Of the ranks of a run that has saved and is held before its last step, so that all that is kept is
  /// there, and nothing that a step, a save or the simulator takes for a moment: no rank works any more. Then
  /// the ranks are killed.
  std::int64_t measured(const config::RunConfig& config, const World& world) {
    const std::string name = "run" + std::to_string(runs_++), dir = path(name);
    std::filesystem::create_directories(std::filesystem::path(dir) / "checkpoints");
    const auto resolved = config::resolve(config, facts_of(world));
    files::replace_atomically(std::filesystem::path(dir) / "config.toml", config::to_toml(resolved));
    write(name + "/hold", "0 300");
    std::atomic<bool> over = false;
    Finished done;
    std::thread trains([&] {
      done =
          run(ranks_on_nodes(world, dir, config.checkpoint.local == snapshots_), std::chrono::seconds(300));
      over = true;
    });
    const auto steps_before_the_last = as_size(config.train.steps - 1);
    Reading last;
    for (int equal = 0; !over && equal < 5;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (std::filesystem::exists(path(name + "/metrics.jsonl")) &&
          metrics(name).size() >= steps_before_the_last && committed(path(name + "/checkpoints"))) {
        const Reading now = read_ranks(dir);
        equal = now.bytes == last.bytes && now.idle_since(last, world.ranks()) ? equal + 1 : 0;
        last = now;
      }
    }
    const bool held = !over;
    for (const int rank : last.processes) ::kill(rank, SIGKILL);
    trains.join();
    EXPECT_TRUE(held) << done.err;
    std::filesystem::remove_all(dir);
    std::filesystem::remove_all(snapshots_);
    std::filesystem::create_directory(snapshots_);
    return last.bytes;
  }

  /// What ranks of such a world take besides, by a smaller model.
  std::int64_t besides(const World& world) {
    auto [at, missing] = besides_.try_emplace(world, 0);
    if (missing) {
      const bool partners = world.nodes > 1;  // they have buffers of their own to talk
      const auto config =
          config_of(world, "smaller.toml",
                    partners ? Sets{"shard.strategy=full_shard", "checkpoint.local=" + snapshots_} : Sets{});
      const HostMemory plan = planned(config, world);
      at->second = measured(config, world) - computed(plan, world);
      std::int64_t bounds = 0;
      for (const HostPart& part : plan.parts)
        if (part.bound && !part.in_shm) bounds += part.bytes * world.nodes;
      EXPECT_LE(at->second, bounds) << "the bounds are none";
      fmt::print("{}  {} x {}  besides {:.1f} MB, planned at most {:.1f} MB\n", world.gpu ? "GPU" : "CPU",
                 world.nodes, world.ranks_per_node, megabytes(at->second), megabytes(bounds));
    }
    return at->second;
  }

  void expect_measured_as_planned(const World& world, const Sets& sets) {
    const auto config = config_of(world, "model.toml", sets);
    const HostMemory plan = planned(config, world);
    const std::int64_t besides_it = besides(world);
    const std::int64_t real = measured(config, world);
    const double wanted = megabytes(computed(plan, world)), found = megabytes(real - besides_it);
    std::string name;
    for (const auto& set : sets)
      name += set.starts_with("checkpoint.local=") ? "local " : set.substr(set.find('=') + 1) + " ";
    if (plan.bytes_of("partner copies") > 0) name += "partner";
    fmt::print("{}  {} x {}  {:<36}  planned {:8.1f} MB  measured {:8.1f} MB  {:+.2f} %\n",
               world.gpu ? "GPU" : "CPU", world.nodes, world.ranks_per_node, name, wanted, found,
               100 * (found / wanted - 1));
    std::fflush(stdout);
    EXPECT_NEAR(found, wanted, 0.01 * wanted + megabytes(world.ranks() * staging_buffer))
        << name << ::testing::PrintToString(host_memory_says(plan));
  }

  void every_strategy_and_level(bool gpu) {
    const std::string local = "checkpoint.local=" + snapshots_;
    struct Layout {
      World world;
      Sets sets;
    };
    const std::vector<Layout> layouts = {
        {{gpu, 1, 2}, {"shard.strategy=no_shard"}},
        {{gpu, 1, 2}, {"shard.strategy=full_shard"}},
        {{gpu, 1, 2}, {"shard.strategy=shard_grad_op"}},
        {{gpu, 1, 4}, {"shard.strategy=hybrid_shard", "shard.group=2"}},
        {{gpu, 1, 4}, {"shard.strategy=hfsdp", "shard.group=2"}},
    };
    for (const auto& [world, sets] : layouts) {
      Sets all = sets;
      all.push_back(local);
      expect_measured_as_planned(world, all);
    }
    expect_measured_as_planned({gpu, 1, 2}, {"shard.strategy=full_shard"});  // without a local level
    expect_measured_as_planned({gpu, 2, 1}, {"shard.strategy=full_shard", local});
    expect_measured_as_planned({gpu, 2, 1},
                               {"shard.strategy=shard_grad_op", local, "checkpoint.partner_every=2"});
    expect_measured_as_planned({gpu, 2, 1}, {"shard.strategy=hfsdp", "shard.group=1", local});
  }

  std::string snapshots_;
  std::map<World, std::int64_t> besides_;
  int runs_ = 0;
};

TEST_F(MeasuredMemory, OfRanksOnTheCpuIsAsPlanned) {
  write_model("model", 3, 512, 1408);
  write_model("smaller", 1, 512, 1408);  // products of the same shapes
  every_strategy_and_level(false);
}

/// Smaller, since the simulator is slow.
TEST_F(MeasuredMemory, OfRanksOnTheSimulatedGpuIsAsPlanned) {
  write_model("model", 1, 512, 1408);
  write_model("smaller", 1, 384, 1056);  // as many operations to remember, and saves that fill their buffers
  every_strategy_and_level(true);
}

}  // namespace
}  // namespace holdfast::launcher
