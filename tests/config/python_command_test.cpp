#include "src/config/python_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::config {
namespace {

using testing::ElementsAre;

TEST(PythonCommand, HasAnInterpreterAProgramAndItsArguments) {
  const auto script = python_command({"/venv/bin/python3.11", "-u", "-X", "dev", "train.py", "--lr", "1"});
  ASSERT_TRUE(script);
  EXPECT_THAT(script->interpreter, ElementsAre("/venv/bin/python3.11", "-u", "-X", "dev"));
  EXPECT_FALSE(script->module);
  EXPECT_EQ(script->program, "train.py");
  EXPECT_THAT(script->arguments, ElementsAre("--lr", "1"));
  const auto module = python_command({"python", "-m", "pkg.train", "-u"});
  ASSERT_TRUE(module);
  EXPECT_TRUE(module->module);
  EXPECT_EQ(module->program, "pkg.train");
  EXPECT_THAT(module->arguments, ElementsAre("-u"));
}

TEST(PythonCommand, OthersAreNone) {
  EXPECT_FALSE(python_command({}));
  EXPECT_FALSE(python_command({"bash", "train.sh"}));
  EXPECT_FALSE(python_command({"python3-config", "train.py"}));
  EXPECT_FALSE(python_command({"python3"}));
  EXPECT_FALSE(python_command({"python3", "-m"}));
  EXPECT_FALSE(python_command({"python3", "-c", "print()"}));
  EXPECT_FALSE(python_command({"python3", "-", "x"}));
}

}  // namespace
}  // namespace holdfast::config
