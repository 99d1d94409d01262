#include "src/command_line/complete.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/command_line/program.hpp"

namespace holdfast::command_line {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Candidates offered(const std::string& type) {
  if (type == "KEY=VALUE") return {{{"train.steps=", "how many"}, {"train.seed=", ""}}};
  if (type == "JOB.toml") return {{{"quickstart", ""}}, Paths::files};
  if (type == "RUN") return {{}, Paths::folders};
  if (type == "NODE") return {{{"dgx001", "idle"}}};
  return {};
}

Candidates after(const std::vector<std::string>& words) {
  const test::Program program;
  return complete(program.app, words, offered);
}

std::vector<std::string> words_after(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const auto& candidate : after(words).words) out.push_back(candidate.word);
  return out;
}

TEST(Complete, Verbs) {
  EXPECT_THAT(words_after({""}), ElementsAre("submit", "ctl", "tool"));
  EXPECT_THAT(after({"s"}).words, ElementsAre(Candidate{"submit", "Submit a job"}));
  EXPECT_THAT(words_after({}), ElementsAre("submit", "ctl", "tool"));
}
TEST(Complete, Options) {
  EXPECT_THAT(words_after({"submit", "-"}), ElementsAre("--help", "--set", "--json"));
  EXPECT_THAT(words_after({"submit", "a.toml", "--j"}), ElementsAre("--json"));
}
TEST(Complete, ValuesOfOptions) {
  EXPECT_THAT(words_after({"submit", "--set", "train.st"}), ElementsAre("train.steps="));
  EXPECT_THAT(words_after({"submit", "--set=train.st"}), ElementsAre("--set=train.steps="));
  EXPECT_THAT(words_after({"submit", "--json=x"}), IsEmpty()) << "it takes no value";
}
TEST(Complete, ArgumentsInTheirOrder) {
  EXPECT_EQ(after({"submit", ""}).paths, Paths::files);
  EXPECT_THAT(words_after({"submit", "--set", "train.seed=1", "q"}), ElementsAre("quickstart"));
  EXPECT_THAT(words_after({"submit", "a.toml", ""}), IsEmpty()) << "there is one job file";
  EXPECT_THAT(words_after({"submit", "-j", ""}), ElementsAre("quickstart")) << "a flag takes no value";
}
TEST(Complete, VerbsBehindAnArgument) {
  EXPECT_EQ(after({"ctl", ""}).paths, Paths::folders);
  EXPECT_THAT(words_after({"ctl", "run", "s"}), ElementsAre("save", "stop"));
  EXPECT_THAT(words_after({"ctl", "run", "stop", ""}), ElementsAre("dgx001"));
}
TEST(Complete, NothingForAnotherProgram) {
  EXPECT_THAT(words_after({"submit", "a.toml", "--", "--s"}), IsEmpty());
}
TEST(Complete, LinesForTheShell) {
  EXPECT_EQ(lines_of({{{"a", "first\nsecond"}, {"b", ""}}, Paths::files}), "a\tfirst\nb\n:files\n");
  EXPECT_EQ(lines_of({{}, Paths::folders}), ":folders\n");
}

std::string refusal(const std::vector<std::string>& words) {
  const test::Program program;
  try {
    refuse_unknown_verb(program.app, words);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "";
}

TEST(UnknownVerb, IsNamedWithTheNearestOne) {
  EXPECT_THAT(refusal({"sumbit", "a.toml"}), HasSubstr("'sumbit'. Did you mean 'holdfast submit'?"));
  EXPECT_THAT(refusal({"ctl", "run", "sop"}),
              HasSubstr("'sop' of 'holdfast ctl'. Did you mean 'holdfast ctl stop'?"));
  EXPECT_THAT(refusal({"zzzzzzz"}), HasSubstr("'holdfast --help' lists the verbs"));
}
TEST(UnknownVerb, MayStandBeforeItsArgument) {
  EXPECT_THAT(refusal({"ctl", "save", "t2"}),
              HasSubstr("'t2' of 'holdfast ctl'. Did you mean 'holdfast ctl t2 save'?"));
  EXPECT_THAT(refusal({"ctl", "stop", "t2", "dgx001"}),
              HasSubstr("Did you mean 'holdfast ctl t2 stop dgx001'?"));
  EXPECT_EQ(refusal({"ctl", "save", "stop"}), "") << "a run may be called so";
  EXPECT_THAT(refusal({"ctl", "save"}), HasSubstr("RUN is required before 'save'"));
  EXPECT_EQ(refusal({"ctl", "save", "--help"}), "");
}
TEST(UnknownVerb, IsNoArgumentAndNoValue) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"submit", "anything"},
                                             {"submit", "--set", "x=1", "a"},
                                             {"ctl", "sop", "stop"},
                                             {"tool", "zzz"},
                                             {"--help"}})
    EXPECT_EQ(refusal(words), "") << words.front();
}

TEST(CompletionScript, ForTheShellsThatAreKnown) {
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_THAT(completion_script(shell), HasSubstr("holdfast complete -- ")) << shell;
  EXPECT_EQ(completion_script("tcsh"), "");
}

}  // namespace
}  // namespace holdfast::command_line
