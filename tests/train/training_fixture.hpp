#pragma once
// Runs holdfast-train as a user would, in a folder of its own, on a model and text made for the test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/env.hpp"
#include "src/base/files.hpp"
#include "src/base/subprocess.hpp"
#include "src/data/token_file.hpp"
#include "tests/support/learnable_tokens.hpp"

namespace holdfast::train {

class TrainingFixture : public ::testing::Test {
 protected:
  using Sets = std::vector<std::string>;
  static constexpr int vocabulary = 128;

  void SetUp() override {
    env::set("OMPI_ALLOW_RUN_AS_ROOT", "1");  // containers run as root
    env::set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    env::set("OMP_NUM_THREADS", "1");  // threads that spin for each other crawl where cores are shared
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("holdfast-train-") + test->name() + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    env::set("OMPI_MCA_orte_tmpdir_base", folder_.string());  // one that two tests make at once is an error
    write("model.toml",
          "[model]\nname = \"micro\"\nvocabulary = 128\nwidth = 32\nlayers = 2\nheads = 4\nkv_heads = 2\nffn "
          "= 88\nmax_sequence = 64\n");
    write("job.toml",
          "[model]\nfile = \"" + path("model.toml") + "\"\n[data]\ntokens = \"" + path("tokens.bin") +
              "\"\n[train]\nsteps = 10\nsequence = 32\nglobal_batch = 32\nmicro_batch = 2\nlanes = 8\n"
              "[optim]\nlr = 1e-2\nwarmup_steps = 2\n[checkpoint]\nevery = 5\n");
    write_tokens("tokens.bin", vocabulary, 5000);
  }
  void TearDown() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  void write_tokens(const std::string& name, int tokens_known, int count) const {
    data::TokenFileWriter writer(path(name), tokens_known);
    writer.append(learnable_tokens(tokens_known, count));
    writer.finish();
  }

  /// `world` ranks train in run directory `dir`; `before` is put in front of the command line.
  Command command(int world, const std::string& dir, const Sets& sets = {},
                  const std::vector<std::string>& before = {}) const {
    Command c;
    c.argv = before;
    if (world > 1)
      c.argv.insert(c.argv.end(),
                    {HOLDFAST_MPIEXEC, "-n", std::to_string(world), "--oversubscribe", "--bind-to", "none"});
    c.argv.insert(c.argv.end(), {HOLDFAST_TRAIN, path("job.toml"), "--run-dir", path(dir)});
    for (const auto& set : sets) c.argv.insert(c.argv.end(), {"--set", set});
    return c;
  }
  Finished train(int world, const std::string& dir, const Sets& sets = {},
                 const std::vector<std::string>& before = {}) const {
#if defined(__SANITIZE_THREAD__)
    constexpr std::chrono::seconds limit{600};
#else
    constexpr std::chrono::seconds limit{200};  // on a machine that other tests use, too
#endif
    return run(command(world, dir, sets, before), limit);
  }
  /// The ranks that this mpirun has started.
  static std::vector<pid_t> ranks_of(pid_t mpirun) {
    std::vector<pid_t> out;
    const auto process = std::filesystem::path("/proc") / std::to_string(mpirun) / "task";
    std::error_code ended;
    for (const auto& thread : std::filesystem::directory_iterator(process, ended)) {
      std::ifstream children(thread.path() / "children");
      for (pid_t child = 0; children >> child;) out.push_back(child);
    }
    return out;
  }
  nlohmann::json result(const std::string& dir) const {
    return nlohmann::json::parse(files::read_text(folder_ / dir / "result.json"));
  }
  std::string digest(const std::string& dir) const { return result(dir)["state_digest"]; }
  std::vector<nlohmann::json> metrics(const std::string& dir) const {
    std::vector<nlohmann::json> out;
    std::ifstream lines(folder_ / dir / "metrics.jsonl");
    // A last line without its end is being written.
    for (std::string line; std::getline(lines, line) && !lines.eof();)
      out.push_back(nlohmann::json::parse(line));
    return out;
  }
  /// Loss of every step, as bits matter.
  std::vector<double> losses(const std::string& dir) const {
    std::vector<double> out;
    for (const auto& line : metrics(dir)) out.push_back(line["loss"]);
    return out;
  }
  std::filesystem::path checkpoint(const std::string& dir, int step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d", step);
    return folder_ / dir / "checkpoints" / name;
  }

  std::filesystem::path folder_;
};

}  // namespace holdfast::train
