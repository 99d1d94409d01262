#include "src/base/shell_words.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ShellWords, AreThoseOfAShell) {
  EXPECT_THAT(shell_words(" python  train.py --lr 1e-3\n"),
              ElementsAre("python", "train.py", "--lr", "1e-3"));
  EXPECT_THAT(shell_words(R"(a 'b  c'd "e \"f\" \n" \  '' g\'h)"),
              ElementsAre("a", "b  cd", R"(e "f" \n)", " ", "", "g'h"));
  EXPECT_THAT(shell_words(R"(bash -c 'echo $HOME; exit')"), ElementsAre("bash", "-c", "echo $HOME; exit"));
  EXPECT_THAT(shell_words("a=\"b;c\" d*"), ElementsAre("a=b;c", "d*"));
  EXPECT_THAT(shell_words("  "), IsEmpty());
}

TEST(ShellWords, WhatOnlyAShellCanDoIsRefused) {
  for (const char* text :
       {"a && b", "a > b", "echo $HOME", "echo \"$HOME\"", "echo `a`", "(a)", "a|b", "a 'b", "a \"b"}) {
    try {
      shell_words(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

}  // namespace
}  // namespace holdfast
