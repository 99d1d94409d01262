// The run directory's file system is frozen in the middle of training, as fsfreeze(8) does it: whoever writes
// there waits until it is thawed. Needs root, to mount an image and to freeze it.
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <memory>
#include <numeric>
#include <sstream>
#include <thread>

#include "src/base/clock.hpp"
#include "src/flight/memory.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using std::chrono::milliseconds;

class FrozenStorage : public TrainingFixture {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    TrainingFixture::SetUp();
    // What is mounted here goes with this process and those that it starts.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      GTEST_SKIP() << "needs a mount namespace";
    std::filesystem::create_directories(storage());
    std::ofstream(path("image")).close();
    std::filesystem::resize_file(path("image"), 64 << 20);
    if (!ran({"mkfs.ext4", "-q", "-F", path("image")}) ||
        !ran({"mount", "-o", "loop", path("image"), storage()}))
      GTEST_SKIP() << "no image can be mounted here";
    mounted_ = true;
  }
  void TearDown() override {
    thaw();
    for (const pid_t pid : ranks_) ::kill(pid, SIGKILL);
    if (mpirun_ > 0) ::kill(mpirun_, SIGKILL), ::waitpid(mpirun_, nullptr, 0);
    if (mounted_) ::umount2(storage().c_str(), MNT_DETACH);
    TrainingFixture::TearDown();
  }
  static bool ran(std::vector<std::string> argv) {
    Command c;
    c.argv = std::move(argv);
    return run(c, milliseconds(20000)).status == 0;
  }
  std::string storage() const { return path("storage"); }

  void freeze() {
    // Should this process be killed, somebody still has to thaw it.
    Command thawer;
    thawer.argv = {"sh", "-c", "sleep 60; fsfreeze -u '" + storage() + "'"};
    thawer.new_session = true;
    thawer_ = spawn(thawer);
    const files::Fd fd = files::open(storage(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(::ioctl(fd.get(), FIFREEZE, 0), 0);
    frozen_ = true;
  }
  void thaw() {
    if (std::exchange(frozen_, false))
      ::ioctl(files::open(storage(), O_RDONLY | O_DIRECTORY).get(), FITHAW, 0);
    if (thawer_ > 0) ::kill(-thawer_, SIGKILL), ::waitpid(thawer_, nullptr, 0);
    thawer_ = 0;
  }
  template <class Condition>
  static bool soon(Condition condition, std::chrono::seconds limit) {
    const auto deadline = Deadline::in(limit);
    while (!deadline.passed()) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  /// Collectives that a rank has begun, by the flight record in its memory: nothing is asked of the storage.
  std::uint64_t collectives() {
    const std::string process = "/proc/" + std::to_string(ranks_.front());
    const files::Fd memory = files::open(process + "/mem", O_RDONLY);
    const auto record = std::make_unique<flight::FlightMemory>();
    const auto read = [&](std::uint64_t at) {
      return ::pread(memory.get(), static_cast<void*>(record.get()), sizeof *record,
                     static_cast<off_t>(at)) == static_cast<ssize_t>(sizeof *record) &&
             record->magic == flight::FlightMemory::right_magic && record->bytes == sizeof *record;
    };
    std::ifstream maps(process + "/maps");
    for (std::string line; record_at_ == 0 && std::getline(maps, line);) {
      std::uint64_t begin = 0, end = 0;
      char dash = 0;
      std::istringstream(line) >> std::hex >> begin >> dash >> end;
      if (line.find(" rw-p ") == std::string::npos) continue;
      for (std::uint64_t at = begin; record_at_ == 0 && at + sizeof *record <= end; at += 4096)
        if (read(at)) record_at_ = at;
    }
    if (record_at_ == 0 || !read(record_at_)) return 0;
    const auto entries = flight::decode(*record, *record).entries;
    return entries.empty() ? 0 : entries.back().ordinal;
  }
  std::size_t lines() const { return metrics("storage/run").size(); }

  bool mounted_ = false, frozen_ = false;
  pid_t thawer_ = 0, mpirun_ = 0;
  std::uint64_t record_at_ = 0;
  std::vector<pid_t> ranks_;
};

TEST_F(FrozenStorage, NoStepWaitsForMetricsLogsOrSaves) {
  constexpr std::size_t steps = 400;
  const Sets sets = {"train.steps=" + std::to_string(steps), "checkpoint.every=10",
                     "checkpoint.when_busy=skip", "trace.first=60", "trace.count=2"};
  ASSERT_EQ(train(1, "whole", sets).status, 0);

  // The ranks' own log is on the storage, too, as it is under agents.
  Command c = command(2, "storage/run", sets);
  c.argv.insert(std::ranges::find(c.argv, HOLDFAST_TRAIN),
                {"sh", "-c", "exec \"$0\" \"$@\" 2>>'" + storage() + "/rank.log'"});
  c.output = path("log");
  mpirun_ = spawn(c);
  ASSERT_TRUE(soon([&] { return lines() >= 20; }, std::chrono::seconds(60))) << files::read_text(path("log"));
  // The ranks stand still until the storage is frozen: a fast machine may not be done before.
  ranks_ = ranks_of(mpirun_);
  ASSERT_EQ(ranks_.size(), 2u);
  for (const pid_t pid : ranks_) ::kill(pid, SIGSTOP);
  const std::uint64_t before = collectives();
  const std::size_t lines_before = lines();
  ASSERT_LT(lines_before, steps / 2);
  freeze();
  for (const pid_t pid : ranks_) ::kill(pid, SIGCONT);

  const std::uint64_t of_100_steps = 100 * before / lines_before;
  EXPECT_TRUE(soon([&] { return collectives() > before + of_100_steps; }, std::chrono::seconds(40)))
      << "it stands still after " << collectives() - before << " collectives";
  EXPECT_LE(lines(), lines_before + 1) << "the storage is not frozen: this shows nothing";
  thaw();

  int status = 0;
  ASSERT_TRUE(soon([&] { return ::waitpid(mpirun_, &status, WNOHANG) > 0; }, std::chrono::seconds(60)));
  mpirun_ = 0;
  ranks_.clear();
  EXPECT_EQ(exit_status(status), 0) << files::read_text(path("log"));
  EXPECT_EQ(digest("storage/run"), digest("whole"));
  EXPECT_EQ(losses("storage/run"), losses("whole"));
  const std::string log = files::read_text(storage() + "/rank.log");
  EXPECT_NE(log.find("step 400/400"), std::string::npos) << log;
  for (const char* rank : {"0", "1"})
    EXPECT_TRUE(std::filesystem::exists(storage() + "/run/trace/rank-0000" + rank + ".json"));
}

}  // namespace
}  // namespace holdfast::train
