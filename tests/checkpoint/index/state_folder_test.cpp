// Snapshots that outlive a process: what is sealed is whole, however the writer ended.
#include "checkpoint/index/state_folder.hpp"
#include "src/base/as_size.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "src/base/digest.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/snapshot/seal.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/support/no_descriptors.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr LocalIdentity identity{1, 2, 3, 8};

class StateFolderTest : public ::testing::Test {
 protected:
  fs::path path(const std::string& name = "rank-00003") const { return folder_.path() / "state" / name; }
  StateFolder make(bool reset = false, std::int64_t bytes = 10'000, int buffers = 2) const {
    return StateFolder(path(), identity, bytes, buffers, reset, 4000);
  }
  testing::Folder folder_;
};

Sealed at_step(std::int64_t step) {
  return {{step, 100 * step, 10 * step, "detector", "scaling \"quoted\"\n"},
          {~std::uint64_t{0}, static_cast<std::uint64_t>(step)}};
}

void fill(std::span<std::byte> buffer, std::int64_t step) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    buffer[i] = static_cast<std::byte>(mix64(static_cast<std::uint64_t>(step) * 1'000'003 + i));
}

/// A buffer as one tensor.
State view(std::span<std::byte> buffer) {
  const auto n = static_cast<std::int64_t>(buffer.size() / sizeof(float));
  return {{{"model/all", 1, n, DType::fp32}}, {{0, 0, n, buffer.data()}}};
}

TEST_F(StateFolderTest, WhatIsSealedIsFoundAgainUntilTheBufferIsOpened) {
  {
    StateFolder file = make();
    EXPECT_EQ(file.buffers(), 2);
    EXPECT_EQ(file.sealed(0), std::nullopt);
    for (int buffer : {0, 1}) {
      ASSERT_EQ(file.buffer(buffer).size(), 10'000u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.buffer(buffer).data()) % 4096, 0u);
      file.open(buffer);
      fill(file.buffer(buffer), buffer);
      file.seal(buffer, at_step(buffer));
    }
    EXPECT_EQ(file.sealed(0), at_step(0));
  }
  StateFolder file = make();
  EXPECT_EQ(file.sealed(0), at_step(0));
  EXPECT_EQ(file.sealed(1), at_step(1));
  std::vector<std::byte> expected(10'000);
  fill(expected, 1);
  EXPECT_TRUE(std::ranges::equal(file.buffer(1), expected));
  file.open(0);
  EXPECT_EQ(file.sealed(0), std::nullopt);
  EXPECT_EQ(file.sealed(1), at_step(1));
}

TEST_F(StateFolderTest, IsThisUsersAlone) {
  make();
  EXPECT_EQ(fs::status(path().parent_path()).permissions(), fs::perms::owner_all);
  for (const char* file : {"state.buffer", "seal"})
    EXPECT_EQ(fs::status(path() / "1" / file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::permissions(path().parent_path(), fs::perms::group_read, fs::perm_options::add);
  EXPECT_THROW(make(), Error);
  fs::rename(path().parent_path(), folder_.path() / "elsewhere");
  fs::create_directory_symlink(folder_.path() / "elsewhere", path().parent_path());
  EXPECT_THROW(make(), Error);
}

TEST_F(StateFolderTest, AnotherIdentityOrSizeStartsAnew) {
  const auto sealed_after = [&](const LocalIdentity& other, std::int64_t bytes, int buffers, bool reset) {
    fs::remove_all(path());
    make().seal(1, at_step(7));
    return StateFolder(path(), other, bytes, buffers, reset, 4000).sealed(1).has_value();
  };
  EXPECT_TRUE(sealed_after(identity, 10'000, 2, false));
  EXPECT_FALSE(sealed_after(identity, 10'000, 2, true));
  EXPECT_FALSE(sealed_after(identity, 10'001, 2, false));
  EXPECT_FALSE(sealed_after(identity, 10'000, 3, false));
  EXPECT_FALSE(sealed_after({9, 2, 3, 8}, 10'000, 2, false));
  EXPECT_FALSE(sealed_after({1, 9, 3, 8}, 10'000, 2, false));
  EXPECT_FALSE(sealed_after({1, 2, 4, 8}, 10'000, 2, false));
  EXPECT_TRUE(sealed_after({1, 2, 3, 9}, 10'000, 2, false)) << "the same pieces in another world";
}

TEST_F(StateFolderTest, FindsOnlyWhatFitsAndOnlyReads) {
  EXPECT_FALSE(StateFolder::find(path(), identity, 10'000));
  StateFolder own = make(false, 10'000, 3);
  own.seal(2, at_step(5));
  EXPECT_FALSE(StateFolder::find(path(), {1, 2, 4, 8}, 10'000));
  EXPECT_FALSE(StateFolder::find(path(), identity, 9'999));
  EXPECT_FALSE(StateFolder::find(path().parent_path(), identity, 10'000));
  auto found = StateFolder::find(path(), identity, 10'000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->buffers(), 3);
  EXPECT_EQ(found->sealed(2), at_step(5));
  EXPECT_THROW(found->open(2), std::logic_error);
  EXPECT_THROW(found->seal(2, at_step(6)), std::logic_error);
  EXPECT_EQ(own.sealed(2), at_step(5));
}

TEST_F(StateFolderTest, AStateThatCannotBeLookedAtIsNotTakenForAbsent) {
  make().seal(0, at_step(5));
  {
    const test::NoDescriptors full;
    EXPECT_THROW(outline_of(path()), Error);
    EXPECT_THROW(make(), Error);
  }
  const auto found = StateFolder::find(path(), identity, 10'000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sealed(0), at_step(5));
}

TEST_F(StateFolderTest, LivesOnWhenItsFolderGoes) {
  StateFolder file = make();
  fs::remove_all(path().parent_path());
  fill(file.buffer(0), 1);
  file.seal(0, at_step(1));
  EXPECT_EQ(file.sealed(0), at_step(1));
  EXPECT_FALSE(StateFolder::find(path(), identity, 10'000));
}

TEST_F(StateFolderTest, SomebodyWhoStillReadsItIsLeftInPeaceByANewOne) {
  make().seal(0, at_step(1));
  const auto reader = StateFolder::find(path(), identity, 10'000);
  const StateFolder other(path(), {5, 5, 3, 8}, 50, 2, false);
  EXPECT_EQ(reader->sealed(0), at_step(1));
  EXPECT_EQ(reader->buffer(1).back(), std::byte{0});
}

TEST_F(StateFolderTest, ARecordThatDoesNotFitIsRefused) {
  StateFolder file = make();
  Sealed large = at_step(1);
  large.point.scaling.assign(5000, 'x');
  EXPECT_THROW(file.seal(0, large), Error);
  EXPECT_EQ(file.sealed(0), std::nullopt);
  file.seal(0, at_step(1));
  EXPECT_EQ(file.sealed(0), at_step(1));
}

/// A file that may not grow stands for a full folder.
TEST_F(StateFolderTest, AFullFolderIsAnErrorAtTheBeginning) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    make(false, 10 << 20);
  } catch (const Error& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_NE(said.find("bytes are needed"), std::string::npos) << said;
  EXPECT_NE(said.find("are free in"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(StateFolderTest, NoDamagedByteOfASealIsBelieved) {
  make().seal(0, at_step(3));
  const fs::path seal = path() / "0" / "seal", data = path() / "0" / "state.buffer";
  const std::string good = testing::read_file(seal), all = testing::read_file(data);
  const std::size_t text = good.find('\0');
  ASSERT_LT(text, good.size()) << "there is room behind it";
  for (std::size_t place = 0; place < text; ++place)
    for (const unsigned char bits : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[place] = static_cast<char>(static_cast<unsigned char>(bad[place]) ^ bits);
      testing::write_file(seal, bad);
      EXPECT_FALSE(StateFolder::find(path(), identity, 10'000)) << "byte " << place;
    }
  for (const std::size_t bytes : {std::size_t{0}, text / 2, text - 1}) {
    testing::write_file(seal, good.substr(0, bytes));
    EXPECT_FALSE(StateFolder::find(path(), identity, 10'000)) << bytes;
  }
  testing::write_file(seal, good);
  for (const std::string& bytes : {all.substr(1), all + "x"}) {
    testing::write_file(data, bytes);
    EXPECT_FALSE(StateFolder::find(path(), identity, 10'000)) << bytes.size();
  }
  testing::write_file(data, all);
  EXPECT_TRUE(StateFolder::find(path(), identity, 10'000)->sealed(0));
}

/// One reader for all: what the trainer seals is a seal like any program's.
TEST_F(StateFolderTest, ASealIsThatOfAProgramWithANote) {
  make().seal(0, at_step(3));
  const auto seal = snapshot::seal_of(testing::read_file(path() / "0" / "seal"));
  ASSERT_TRUE(seal);
  EXPECT_EQ(seal->step, 3);
  EXPECT_EQ(seal->world, 8);
  ASSERT_EQ(seal->buffers.size(), 1u);
  EXPECT_EQ(seal->buffers[0].name, "state");
  EXPECT_EQ(seal->buffers[0].bytes, 10'000);
  EXPECT_NE(seal->note.find("\"tokens\":300"), std::string::npos);
}

TEST_F(StateFolderTest, TextOfASealIsReadOrRefused) {
  EXPECT_EQ(sealed_from_text(to_text(at_step(9))), at_step(9));
  for (const char* text : {"", "{}", "[]", "{\"step\":1}", "nonsense"})
    EXPECT_EQ(sealed_from_text(text), std::nullopt) << text;
  std::string text = to_text(at_step(9));
  text.pop_back();
  EXPECT_EQ(sealed_from_text(text), std::nullopt);
}

TEST_F(StateFolderTest, DigestsAreThoseOfThePieces) {
  testing::Whole whole(testing::odd_tensors(), 4);
  State state = whole.view(testing::whole_spans(whole.tensors));
  const auto digests = piece_digests(state);
  ASSERT_EQ(digests.size(), state.pieces.size());
  std::vector<std::uint64_t> sums(state.tensors.size(), 0);
  for (std::size_t i = 0; i < digests.size(); ++i) sums[state.pieces[i].tensor] += digests[i];
  EXPECT_EQ(sums, partial_digests(state));
}

// ---- killed

/// Steps as training does them: write the other buffer, seal it, tell the others, go on when all have it.
/// Tells by a byte, and waits for one.
[[noreturn]] void step_on(const fs::path& path, int rank, int tell, int go) {
  StateFolder file(path, {1, 2, rank, 4}, 64 << 10, 2, false);
  for (std::int64_t step = 1;; ++step) {
    const int buffer = static_cast<int>(step % 2);
    file.open(buffer);
    fill(file.buffer(buffer), step);
    file.seal(buffer, {{step, 0, 0}, piece_digests(view(file.buffer(buffer)))});
    char byte = 0;
    if (::write(tell, &byte, 1) != 1 || ::read(go, &byte, 1) != 1) ::_exit(1);
  }
}

TEST_F(StateFolderTest, RanksThatStepTogetherAlwaysHaveACommonStepWhenTheyAreKilled) {
  constexpr int ranks = 4;
  const int times = std::stoi(env::get("HOLDFAST_KILLS").value_or("40"));
  std::mt19937 random(7);
  int opened = 0;
  // A busy machine may let every kill come between two writes for long.
  for (int time = 0; time < times || (opened == 0 && time < 50 * times); ++time) {
    fs::remove_all(path().parent_path());
    std::array<std::array<int, 2>, ranks> tell, go;
    std::array<pid_t, ranks> children;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = as_size(rank);
      ASSERT_EQ(::pipe(tell[r].data()) + ::pipe(go[r].data()), 0);
      children[r] = ::fork();
      if (children[r] == 0) step_on(path(std::to_string(rank)), rank, tell[r][1], go[r][0]);
    }
    // A few whole steps, then the end comes at any moment of the next ones.
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2000 + random() % 6000);
    std::int64_t done = 0;
    while (done < 2 || std::chrono::steady_clock::now() < end) {
      char byte = 0;
      for (std::size_t r = 0; r < ranks; ++r) ASSERT_EQ(::read(tell[r][0], &byte, 1), 1);
      ++done;
      for (std::size_t r = 0; r < ranks; ++r) ASSERT_EQ(::write(go[r][1], &byte, 1), 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (std::size_t r = 0; r < ranks; ++r)
      for (const int fd : {tell[r][0], tell[r][1], go[r][0], go[r][1]}) ::close(fd);

    std::set<std::int64_t> common;
    for (int rank = 0; rank < ranks; ++rank) {
      auto file = StateFolder::find(path(std::to_string(rank)), {1, 2, rank, 4}, 64 << 10);
      ASSERT_TRUE(file);
      std::set<std::int64_t> steps;
      for (int buffer : {0, 1}) {
        const auto what = file->sealed(buffer);
        if (!what) {
          ++opened;
          continue;
        }
        EXPECT_EQ(piece_digests(view(file->buffer(buffer))), what->digests);
        steps.insert(what->point.step);
      }
      std::set<std::int64_t> both;
      std::ranges::set_intersection(rank == 0 ? steps : common, steps, std::inserter(both, both.begin()));
      common = both;
    }
    ASSERT_FALSE(common.empty());
    EXPECT_GE(*common.rbegin(), done);
  }
  EXPECT_GT(opened, 0) << "no kill ever hit a buffer that was being written";
}

}  // namespace
}  // namespace holdfast::checkpoint
