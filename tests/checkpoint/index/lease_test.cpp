// Whoever reads a checkpoint of a run that lives can read it to its end.
#include "checkpoint/index/lease.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "checkpoint/index/retention.hpp"
#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Leases : public ::testing::Test {
 protected:
  fs::path save(std::int64_t step, int keep = 1) {
    Whole whole(tensors_, step);
    return testing::save(folder_.path(), whole, step, {1, 1}, layout_, keep).path;
  }
  std::vector<fs::path> lease_files() const {
    std::vector<fs::path> out;
    for (const std::string& name : files::list(folder_.path()))
      if (parse_name(name).kind == Name::Kind::lease) out.push_back(folder_.path() / name);
    return out;
  }
  /// As if it had not been renewed for so long.
  static void age(const fs::path& lease, std::chrono::seconds by) {
    struct stat info {};
    ASSERT_EQ(::stat(lease.c_str(), &info), 0);
    timespec times[] = {{0, UTIME_OMIT}, info.st_mtim};
    times[1].tv_sec -= by.count();
    ASSERT_EQ(::utimensat(AT_FDCWD, lease.c_str(), times, 0), 0);
  }

  Folder folder_;
  const std::vector<LogicalTensor> tensors_ = odd_tensors();
  const WriterLayout layout_ = even_layout(tensors_, 2);
};

TEST_F(Leases, keepWhatRetentionWouldTake) {
  const fs::path first = save(1);
  {
    const auto leased = lease_newest(folder_.path());
    ASSERT_TRUE(leased);
    EXPECT_EQ(leased->lease.why_not(), "");
    EXPECT_EQ(leased->path, first);
    save(2);
    save(3);
    EXPECT_THAT(committed_steps(folder_.path()), ElementsAre(3, 1));
    EXPECT_TRUE(holds(first, tensors_, 1));
  }
  EXPECT_THAT(lease_files(), IsEmpty()) << "it is given back";
  save(4);
  EXPECT_THAT(committed_steps(folder_.path()), ElementsAre(4));
}

TEST_F(Leases, ofReadersThatDiedExpire) {
  save(1);
  const Lease lease(committed_path(folder_.path(), 1));
  ASSERT_EQ(lease_files().size(), 1u);
  age(lease_files().front(), lease_lasts - std::chrono::seconds(60));
  save(2);
  EXPECT_THAT(committed_steps(folder_.path()), ElementsAre(2, 1)) << "not yet";
  age(lease_files().front(), std::chrono::seconds(120));
  save(3);
  EXPECT_THAT(committed_steps(folder_.path()), ElementsAre(3));
  EXPECT_THAT(lease_files(), IsEmpty()) << "its file is swept away, too";
}

TEST_F(Leases, areRenewedAndMadeAgain) {
  save(1);
  const Lease lease(committed_path(folder_.path(), 1), std::chrono::milliseconds(10));
  ASSERT_EQ(lease_files().size(), 1u);
  const fs::path file = lease_files().front();
  const auto soon = [&](auto holds) {
    for (const auto deadline = Deadline::in(Millis(10000)); !holds() && !deadline.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return holds();
  };
  age(file, 2 * lease_lasts);
  EXPECT_TRUE(soon([&] { return leased_steps(folder_.path()).contains(1); }));
  fs::remove(file);
  EXPECT_TRUE(soon([&] { return leased_steps(folder_.path()).contains(1); }));
}

TEST_F(Leases, areNotNeededElsewhere) {
  const fs::path copy = folder_.path() / "a copy";
  fs::copy(save(1), copy, fs::copy_options::recursive);
  const Lease lease(copy);
  EXPECT_EQ(lease.why_not(), "");
  EXPECT_THAT(lease_files(), IsEmpty());
}

TEST_F(Leases, sayWhyNot) {
  const Lease lease(folder_.path() / "gone" / "step-00000001");
  EXPECT_THAT(lease.why_not(), HasSubstr("no lease can be held on"));
}

/// Retention that has looked for leases in vain, and is then slow.
TEST_F(Leases, whoComesWhileAStepIsRemovedWaitsForItsEnd) {
  save(1);
  const fs::path step = committed_path(folder_.path(), 1), trash = make_trash(folder_.path(), 1);
  std::thread slow([&] {
    while (leased_steps(folder_.path()).empty()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::rename(step, trash);
  });
  EXPECT_THROW(lease_checkpoint(step), Unreadable) << "the step was gone when the lease was there";
  slow.join();
}

TEST_F(Leases, whoPinsAStepThatIsRemovedIsToldSo) {
  save(1);
  const fs::path step = committed_path(folder_.path(), 1), trash = make_trash(folder_.path(), 1);
  std::thread slow([&] {
    while (!fs::exists(pin_path(folder_.path(), 1))) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::rename(step, trash);
  });
  EXPECT_THROW(pin(folder_.path(), 1), Error);
  slow.join();
  EXPECT_FALSE(fs::exists(pin_path(folder_.path(), 1)));
}

/// What every reader has opened, it reads to its end, in the bits of one step.
TEST_F(Leases, eightReadersBesideARunThatKeepsOne) {
  save(1);
  std::atomic<bool> over{false};
  std::atomic<int> read{0}, failed{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i)
    readers.emplace_back([&] {
      while (!over) {
        const auto leased = lease_newest(folder_.path());
        if (!leased || !holds(leased->path, tensors_, leased->manifest.point.step))
          ++failed;
        else
          ++read;
      }
    });
  for (std::int64_t step = 2; step <= 60; ++step) save(step);
  while (read < 16 && failed == 0) std::this_thread::yield();
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failed, 0);
  save(61);
  EXPECT_THAT(committed_steps(folder_.path()), ElementsAre(61));
}

}  // namespace
}  // namespace holdfast::checkpoint
