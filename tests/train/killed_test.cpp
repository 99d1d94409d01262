// Killed again and again at any moment, a run ends as if it had never been. HOLDFAST_KILLS=50 for a long
// proof.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using std::chrono::milliseconds;

class Killed : public TrainingFixture {
 protected:
  /// Folders of checkpoints that are not committed: "step-00000007.tmp-0-2".
  std::set<std::string> unfinished() const {
    std::set<std::string> out;
    for (const std::string& name : files::list(folder_ / "run" / "checkpoints"))
      if (name.find(".tmp-") != std::string::npos) out.insert(name);
    return out;
  }
  /// Until the run has ended (true), or for `moment`; or, when it is to be `inside_a_save`, until a
  /// checkpoint after `step` is being written.
  bool ends_before(pid_t mpirun, int& status, milliseconds moment, bool inside_a_save, int step) const {
    const auto left_over = unfinished();
    const std::string before = checkpoint("run", step).filename().string();
    for (milliseconds waited{0}; inside_a_save || waited < moment; ++waited) {
      std::this_thread::sleep_for(milliseconds(1));
      if (::waitpid(mpirun, &status, WNOHANG) != 0) return true;
      for (const std::string& name : unfinished())
        if (inside_a_save && name > before && !left_over.contains(name)) return false;
    }
    return false;
  }
  void expect_the_undisturbed_end() const {
    EXPECT_EQ(digest("run"), digest("whole"));
    EXPECT_EQ(losses("run"), losses("whole"));
    EXPECT_THAT(unfinished(), ::testing::IsEmpty()) << "what the killed left was not swept";
  }
  /// Attempts that left a line: only those that were resumed from did.
  int attempts() const {
    std::set<int> out;
    for (const auto& line : metrics("run")) out.insert(line["attempt"].get<int>());
    return static_cast<int>(out.size());
  }
};

TEST_F(Killed, AtAnyMomentTheEndIsTheSame) {
  const int kills = std::stoi(env::get_or("HOLDFAST_KILLS", "3"));
  constexpr int every = 7;
  const Sets sets = {"train.steps=600", "train.global_batch=8", "train.micro_batch=1",
                     "checkpoint.every=" + std::to_string(every), "shard.strategy=full_shard"};
  ASSERT_EQ(train(1, "whole", sets).status, 0);
  std::mt19937 random(2026);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  int killed = 0, inside_saves = 0, resumed = 0, step = 0;
  for (int attempt = 0; killed < kills && attempt < 20 * kills; ++attempt) {
    Command c = command(2, "run", sets);
    c.output = path("log");
    const pid_t mpirun = spawn(c);
    int status = 0;
    const bool inside_a_save = attempt % 2 == 0;
    if (!ends_before(mpirun, status, milliseconds(below(1500)), inside_a_save, step + every * below(20))) {
      const auto ranks = ranks_of(mpirun);
      const bool a_rank = below(3) > 0 && !ranks.empty();
      ::kill(a_rank ? ranks[random() % ranks.size()] : mpirun, SIGKILL);
      ::waitpid(mpirun, &status, 0);
      ++killed;
      inside_saves += inside_a_save;
    } else {
      // Refused with 2: ranks whose mpirun died need a moment to notice.
      ASSERT_TRUE(exit_status(status) == 0 || exit_status(status) == 2) << files::read_text(path("log"));
      std::this_thread::sleep_for(milliseconds(200));
      if (exit_status(status) == 0) {
        expect_the_undisturbed_end();
        resumed += attempts() - 1;
        std::filesystem::remove_all(folder_ / "run");
      }
    }
    step = 0;
    for (const std::string& name : files::list(folder_ / "run" / "checkpoints"))
      if (name.find('.') == std::string::npos) step = std::max(step, std::stoi(name.substr(5)));
  }
  EXPECT_EQ(killed, kills);
  Finished last;
  for (int i = 0; i < 50; ++i) {
    last = train(2, "run", sets);
    if (last.status != 2) break;
    std::this_thread::sleep_for(milliseconds(200));
  }
  ASSERT_EQ(last.status, 0) << last.err;
  expect_the_undisturbed_end();
  resumed += attempts() - 1;
  EXPECT_GT(resumed, 0) << "nothing was restored";
  std::cout << killed << " kills, " << inside_saves << " of them inside a save; " << resumed
            << " attempts were resumed from\n";
}

}  // namespace
}  // namespace holdfast::train
