// The choices of algorithms that a run has made stay its own, also where they cannot be read for a moment.
#include "src/train/engine/algorithms.hpp"

#include <gmock/gmock.h>

#include "src/base/files.hpp"
#include "src/comm/solo_communicator.hpp"
#include "tests/config/scratch.hpp"
#include "tests/support/as_nobody.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

/// A device with something to choose; where nothing is known it measures, and never finds the same twice.
class ChoosingDevice final : public device::Device {
 public:
  std::string describe() const override { return "choosing"; }
  bool is_host() const override { return true; }
  kernels::Kernels& kernels() override { return cpu_->kernels(); }
  kernels::Kernels& reduce_kernels() override { return cpu_->reduce_kernels(); }
  tensor::Stream& compute() override { return cpu_->compute(); }
  tensor::Stream& side() override { return cpu_->side(); }
  std::span<std::byte> allocate(std::int64_t bytes, std::string_view what) override {
    return cpu_->allocate(bytes, what);
  }
  std::span<std::byte> allocate_host(std::int64_t bytes, std::string_view what) override {
    return cpu_->allocate_host(bytes, what);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override {
    return host;
  }
  void replay(bool) override {}
  void take_notes(bool) override {}
  std::string choices(std::string_view known) override {
    return known.empty() ? "measured " + std::to_string(++measured) : std::string(known);
  }
  void use_choices(std::string_view text) override { used = text; }

  int measured = 0;
  std::string used;

 private:
  std::unique_ptr<device::Device> cpu_ = device::make_cpu_device({.threads = 1});
};

class Algorithms : public ::testing::Test {
 protected:
  std::string agreed() {
    comm::SoloCommunicator world;
    agree_on_algorithms(device, world, file, "", [] {});
    return device.used;
  }

  test::Scratch scratch;
  ChoosingDevice device;
  std::filesystem::path file = scratch.path() / "run/tuning.json";
};

TEST_F(Algorithms, AreMeasuredOnce) {
  scratch.write("run/other", "");
  EXPECT_EQ(agreed(), "measured 1");
  EXPECT_EQ(agreed(), "measured 1");
  EXPECT_EQ(files::read_text(file), "measured 1");
}

TEST_F(Algorithms, AreNotMeasuredAnewWhereTheyCannotBeRead) {
  scratch.write("run/tuning.json", "the run's own");
  std::filesystem::permissions(scratch.path() / "run", std::filesystem::perms::none);
  EXPECT_THAT(test::as_nobody([&] { return agreed() + " was used"; }),
              HasSubstr("cannot look at " + file.string()));
  std::filesystem::permissions(scratch.path() / "run", std::filesystem::perms::owner_all);
  EXPECT_EQ(files::read_text(file), "the run's own");

  std::filesystem::rename(file, scratch.path() / "aside");
  std::filesystem::create_symlink("tuning.json",
                                  file);  // leads nowhere: it cannot be looked at, by root either
  EXPECT_THROW(agreed(), Error);
  EXPECT_TRUE(std::filesystem::is_symlink(file)) << "nothing was written over it";
  EXPECT_EQ(device.measured, 0);
}

}  // namespace
}  // namespace holdfast::train
