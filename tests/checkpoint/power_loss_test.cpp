// The power fails after any call of a save, and the disk keeps whatever it may keep: the newest durable step
// is found and loads, and nothing false does. HOLDFAST_POWER_LOSS_STATES sets how many states are tried
// after each call at most (long form: 2000).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <unordered_set>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/checkpoint/power_loss.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using namespace holdfast::test;

std::size_t states_per_call(std::size_t usual) {
  const char* const text = std::getenv("HOLDFAST_POWER_LOSS_STATES");
  return text == nullptr ? usual : as_size(std::atoll(text));
}

/// Which atoms survive: all ways when they are few; else none, all, each alone, all but each, and random
/// ones, up to `most`.
std::vector<std::vector<bool>> choices(std::size_t atoms, std::size_t most, std::mt19937_64& random) {
  std::vector<std::vector<bool>> out;
  if (atoms < 20 && (std::size_t{1} << atoms) <= most) {
    for (std::size_t bits = 0; bits < std::size_t{1} << atoms; ++bits) {
      auto& kept = out.emplace_back(atoms);
      for (std::size_t i = 0; i < atoms; ++i) kept[i] = (bits >> i & 1) != 0;
    }
    return out;
  }
  for (const bool all : {false, true}) {
    out.emplace_back(atoms, all);
    for (std::size_t i = 0; i < atoms && out.size() < most / 2; ++i) {
      auto& kept = out.emplace_back(atoms, all);
      kept[i] = !all;
    }
  }
  while (out.size() < most) {
    const double survives = std::uniform_real_distribution<>(0, 1)(random);
    auto& kept = out.emplace_back(atoms);
    for (std::size_t i = 0; i < atoms; ++i) kept[i] = std::bernoulli_distribution(survives)(random);
  }
  return out;
}

/// What recovery finds: the newest step that is sound and loads to its own values. -1: none, -2: false
/// values, -3: a committed name that is not whole.
std::int64_t recovered(const fs::path& checkpoints, const std::vector<LogicalTensor>& tensors) {
  std::int64_t newest = -1;
  for (const std::int64_t step : committed_steps(checkpoints)) {
    try {
      if (!holds(committed_path(checkpoints, step), tensors, step)) return -2;
      newest = std::max(newest, step);
    } catch (const Error&) {
      return -3;
    }
  }
  const auto found = newest_sound(checkpoints);
  return found && found->step == newest ? newest : newest == -1 ? -1 : -3;
}

struct PowerLoss : ::testing::Test {
  std::vector<LogicalTensor> tensors = vectors({100, 33, 1});
  WriteOptions options;
  const Folder folder, scratch;
  const fs::path checkpoints = folder.path() / "checkpoints";

  /// Saves `steps` one after the other, as two ranks and their committer do, and marks each as durable when
  /// it is reported so.
  std::function<int()> saving(const std::vector<std::int64_t>& steps, Generation generation) {
    return [=, this] {
      const int null = ::open("/dev/null", O_WRONLY);
      for (const std::int64_t step : steps) {
        Whole whole(tensors, step);
        write_all_shards(checkpoints, whole, step, generation, even_layout(tensors, 2), options).commit();
        files::append_all(null, std::to_string(step), "/dev/null");
        tidy(checkpoints, {2, 0}, generation, step);
      }
      return 0;
    };
  }
  void prepare(const std::vector<std::int64_t>& steps) {
    for (const std::int64_t step : steps) {
      Whole whole(tensors, step);
      save(checkpoints, whole, step, {1, 1}, even_layout(tensors, 2), 2);
    }
  }
  std::vector<Change> record(const std::function<int()>& body) {
    int exit_code = -1;
    std::vector<Change> log = record_changes(folder.path(), body, exit_code);
    EXPECT_TRUE(log.empty() || exit_code == 0) << exit_code;
    return log;
  }

  struct Tried {
    std::size_t calls = 0, states = 0, exhaustive = 0;
    std::vector<std::string> violations;
  };
  /// Replays the log; after each call, states that the disk may be in, each checked once. `durable`: the
  /// newest step before the first mark. `damaged`: a step that is found broken until it is replaced.
  /// `without`: a call that is left out; then the first violation ends it.
  Tried replay(Disk disk, const std::vector<Change>& log, std::int64_t durable, std::size_t most,
               std::int64_t damaged = -1, const Change* without = nullptr) {
    Tried tried;
    std::mt19937_64 random(20);
    std::unordered_set<std::size_t> seen;
    for (const Change& call : log) {
      if (without != nullptr && !tried.violations.empty()) break;
      if (&call != without) disk.apply(call);
      if (call.what == Change::What::mark) {
        durable = std::stoll(call.data);
        seen.clear();  // the same disk, and more is expected of it
      }
      ++tried.calls;
      const std::size_t atoms = disk.atoms();
      tried.exhaustive += atoms < 20 && (std::size_t{1} << atoms) <= most;
      for (const std::vector<bool>& kept : choices(atoms, most, random)) {
        const auto tree = disk.after(kept);
        if (!seen.insert(hash_of(tree)).second) continue;
        ++tried.states;
        const std::string wrong = problem(tree, durable, durable == damaged ? -1 : damaged,
                                          without == nullptr && tried.states % 16 == 0);
        if (!wrong.empty())
          tried.violations.push_back("call " + std::to_string(tried.calls) + " (" + call.path +
                                     "): " + wrong);
      }
    }
    return tried;
  }
  static std::size_t hash_of(const std::map<std::string, std::string>& tree) {
    std::size_t hash = 0;
    for (const auto& [path, content] : tree)
      hash = hash * 31 + std::hash<std::string>()(path) * 17 + std::hash<std::string>()(content);
    return hash;
  }
  /// What is wrong with recovery from this disk, or "".
  std::string problem(const std::map<std::string, std::string>& tree, std::int64_t durable,
                      std::int64_t damaged, bool save_again) {
    const fs::path place = scratch.path() / "disk", there = place / "checkpoints";
    fs::remove_all(place);
    fs::create_directory(place);
    materialise(tree, place);
    if (damaged >= 0) fs::remove_all(committed_path(there, damaged));
    const std::int64_t step = recovered(there, tensors);
    if (step < durable)
      return "recovery finds " + std::to_string(step) + ", durable is " + std::to_string(durable);
    if (!save_again) return "";
    sweep(there, {2, 2});
    Whole whole(tensors, 40);
    save(there, whole, 40, {2, 2}, even_layout(tensors, 2), 2);
    if (recovered(there, tensors) != 40) return "the next attempt cannot save";
    return "";
  }
  /// Records `body` and tries the disks that it may leave behind.
  void expect_survived(const std::function<int()>& body, std::int64_t durable, std::size_t usual,
                       std::int64_t damaged = -1) {
    const Disk disk(folder.path());
    const std::vector<Change> log = record(body);
    if (log.empty()) GTEST_SKIP() << "tracing is not allowed here";
    const Tried tried = replay(disk, log, durable, states_per_call(usual), damaged);
    std::cout << tried.calls << " calls, " << tried.states << " different disks; all possible ones after "
              << tried.exhaustive << " of the calls\n";
    EXPECT_THAT(tried.violations, ::testing::IsEmpty());
    EXPECT_GT(tried.states, tried.calls);
  }
  /// Files and folders whose sync, left out of the log, loses something.
  std::vector<std::string> needed_syncs(const std::function<int()>& body, std::int64_t durable) {
    const Disk disk(folder.path());
    const std::vector<Change> log = record(body);
    std::vector<std::string> needed;
    for (const Change& sync : log)
      if (sync.what == Change::What::sync && !replay(disk, log, durable, 32, -1, &sync).violations.empty())
        needed.push_back(sync.path);
    return needed;
  }
};

TEST_F(PowerLoss, theRecordedLogIsWhatHappened) {
  prepare({10, 15});
  Disk disk(folder.path());
  const std::vector<Change> log = record(saving({20, 30}, {1, 1}));
  if (log.empty()) GTEST_SKIP() << "tracing is not allowed here";
  for (const Change& change : log) disk.apply(change);
  EXPECT_EQ(disk.now(), Disk(folder.path()).now());
}

TEST_F(PowerLoss, twoSavesOverOlderOnes) {
  prepare({10, 15});
  expect_survived(saving({20, 30}, {1, 1}), 15, 512);
}

TEST_F(PowerLoss, theVeryFirstSave) { expect_survived(saving({20}, {1, 1}), -1, 512); }

TEST_F(PowerLoss, aStepThatReplacesADamagedOne) {
  prepare({10, 15, 20});
  flip_bit(committed_path(checkpoints, 20) / "shard-00001.h5", 8 * 8200);
  expect_survived(saving({20}, {1, 2}), 15, 512, 20);
}

/// The first one stays until a later step is durable, whatever survives.
TEST_F(PowerLoss, aSoundStepThatIsWrittenAgain) {
  prepare({10, 15, 20});
  expect_survived(saving({20}, {1, 2}), 20, 512);
}

TEST_F(PowerLoss, aShardOfManyWrites) {
  tensors = vectors({60'000, 7});
  options.threads = 1;
  options.chunk_bytes = block_bytes;
  prepare({10});
  expect_survived(saving({20}, {1, 1}), 10, 256);
}

/// The proof that these disks are hard enough: a save that leaves out one of its syncs is caught.
TEST_F(PowerLoss, noSyncCanBeLeftOut) {
  const std::vector<std::string> first = needed_syncs(saving({20}, {1, 1}), -1);
  if (first.empty()) GTEST_SKIP() << "tracing is not allowed here";
  const std::string temporary = "checkpoints/step-00000020.tmp-1-1";
  EXPECT_THAT(first,
              ::testing::UnorderedElementsAre(temporary + "/shard-00000.h5", temporary + "/shard-00001.h5",
                                              ::testing::StartsWith(temporary + "/manifest.json.tmp-"),
                                              temporary, "", "checkpoints"));
  // Before old ones are removed, nobody may be able to take them for whole ones.
  prepare({10});
  EXPECT_THAT(needed_syncs(saving({30}, {1, 1}), 20), ::testing::Contains("checkpoints"));
}

}  // namespace
}  // namespace holdfast::checkpoint
