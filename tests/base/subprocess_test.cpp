#include "src/base/subprocess.hpp"

#include <gmock/gmock.h>

#include "tests/config/scratch.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::chrono::seconds run_limit{30};

TEST(Subprocess, APathNamesPlaces) {
  EXPECT_THAT(places_in("/a:b::/c:", "x"), ElementsAre("/a/x", "b/x", "./x", "/c/x", "./x"));
  EXPECT_THAT(places_in("/a", "./x"), ElementsAre("./x"));
  EXPECT_THAT(places_in("", "x"), ElementsAre());
}

TEST(Subprocess, AProgramIsLookedForInThePathThatItGets) {
  const test::Scratch scratch;
  const fs::path program = scratch.write("bin/trainer", "#!/bin/sh\necho it runs\n");
  fs::permissions(program, fs::perms::owner_all);
  scratch.write("text/trainer", "no program");
  Command command;
  command.argv = {"trainer"};
  const auto out_with = [&](const std::string& path) {
    command.environment = {"A=b", "PATH=" + path};
    return run(command, run_limit).out;
  };
  const std::string bin = (scratch.path() / "bin").string(), text = (scratch.path() / "text").string();
  EXPECT_EQ(out_with(bin), "it runs\n");
  EXPECT_EQ(out_with("/nowhere:" + text + ":" + bin), "it runs\n") << "what is no program is passed over";
  EXPECT_THAT(test::refusal_of([&] { out_with("/usr/bin"); }).text, HasSubstr("No such file"));
  EXPECT_THAT(test::refusal_of([&] { out_with(text + ":/nowhere"); }).text, HasSubstr("Permission denied"));
  command.folder = scratch.path();
  EXPECT_EQ(out_with("bin"), "it runs\n") << "from the folder in which it works";
}

TEST(Subprocess, WithoutAPathOfItsOwnThatOfThisProcessCounts) {
  Command command;
  command.argv = {"true"};
  EXPECT_EQ(run(command, run_limit).status, 0);
  command.environment = {"A=b"};
  EXPECT_EQ(run(command, run_limit).status, 0);
}

TEST(Subprocess, LowPriorityIsTheLowest) {
  Command command;
  command.argv = {"nice"};
  command.low_priority = true;
  EXPECT_EQ(run(command, run_limit).out, "19\n");
}

}  // namespace
}  // namespace holdfast
