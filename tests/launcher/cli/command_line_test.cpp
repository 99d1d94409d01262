// The program with command lines of a user: its stdout, its stderr, and its exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"
#include "tests/launcher/golden.hpp"

namespace holdfast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

Finished holdfast(std::vector<std::string> arguments, const std::vector<std::string>& variables = {}) {
  Command command;
  command.argv = std::move(arguments);
  command.argv.insert(command.argv.begin(), HOLDFAST_PROGRAM);
  command.environment = env::without({"HOLDFAST_"});
  command.environment->insert(command.environment->end(), variables.begin(), variables.end());
  return run(command, 30s);
}

TEST(CommandLine, HelpGolden) {
  const auto help = holdfast({"--help"});
  EXPECT_EQ(help.status, 0);
  test::expect_golden(help.out, "help.txt");
}

TEST(CommandLine, PlanHelpGolden) { test::expect_golden(holdfast({"plan", "--help"}).out, "help_plan.txt"); }
TEST(CommandLine, SubmitHelpGolden) {
  test::expect_golden(holdfast({"submit", "--help"}).out, "help_submit.txt");
}
TEST(CommandLine, KeysOfAPattern) {
  const auto keys = holdfast({"config", "keys", "train.lanes"});
  EXPECT_THAT(keys.out, StartsWith("[train]\nlanes = "));
}

TEST(CommandLine, ContainerFlagsAreSettings) {
  const auto shown = holdfast({"config", "show", "quickstart", "--container-image", "torch.sqsh",
                               "--container-mounts", "/a:/b,/c \"d\""});
  EXPECT_THAT(shown.out, HasSubstr("image = \"torch.sqsh\""));
  EXPECT_THAT(shown.out, HasSubstr(R"(mounts = ["/a:/b", "/c \"d\""])"));
}

/// What bash would offer for a line, with the function that `holdfast completion bash` prints.
std::string offered_by_bash(const std::string& line) {
  Command bash;
  bash.argv = {
      "bash",
      "-c",
      "PATH=$(dirname \"$1\"):$PATH; source <(holdfast completion bash); COMP_LINE=$2 COMP_POINT=${#2}; "
      "_holdfast 2>/dev/null; printf '%s\\n' \"${COMPREPLY[@]}\"",
      "bash",
      HOLDFAST_PROGRAM,
      line};
  return run(bash, 30s).out;
}
TEST(CommandLine, BashCompletesVerbsOptionsAndSettings) {
  EXPECT_EQ(offered_by_bash("holdfast sub"), "submit\n");
  EXPECT_EQ(offered_by_bash("holdfast submit quickstart --dr"), "--dry-run\n");
  EXPECT_EQ(offered_by_bash("holdfast submit quickstart --set train.ste"), "train.steps=\n");
  EXPECT_EQ(offered_by_bash("holdfast submit quickstart --set=train.ste"), "train.steps=\n") << "behind '='";
  EXPECT_EQ(offered_by_bash("holdfast plan quicks"), "quickstart\n");
}
TEST(CommandLine, TheManualPageHasAllVerbs) {
  const auto page = holdfast({"man"});
  EXPECT_EQ(page.status, 0) << page.err;
  for (const char* verb : {"plan", "submit", "ctl RUN", "ckpt", "generate"})
    EXPECT_THAT(page.out, HasSubstr(std::string(".SS \"holdfast ") + verb));
}
TEST(CommandLine, VerbsOfVerbsAreSuggested) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"ctl", "run", "sav"}, {"ckpt", "lss"}, {"config", "shwo"}, {"data", "prepar"}}) {
    const auto said = holdfast(words);
    EXPECT_EQ(said.status, 2);
    EXPECT_THAT(said.err, HasSubstr("Did you mean 'holdfast " + words.front())) << said.err;
  }
}

TEST(CommandLine, VerbsOfTheToolMayHaveNamesOfOurs) {  // the parser took "ls" for the verb of that name
  const auto said = holdfast({"ckpt", "ls", "nowhere"});
  EXPECT_EQ(said.status, 2);
  EXPECT_THAT(said.err, HasSubstr("nowhere is not a checkpoint or a run directory"));
}

TEST(CommandLine, KeysGolden) { test::expect_golden(holdfast({"config", "keys"}).out, "config_keys.txt"); }

TEST(CommandLine, LinksNothingHeavyAndStartsAtOnce) {
  Command ldd;
  ldd.argv = {"ldd", HOLDFAST_PROGRAM};
  const auto libraries = run(ldd, 30s);
  ASSERT_EQ(libraries.status, 0) << libraries.err;
  for (const char* heavy : {"libmpi", "libhdf5", "libcuda", "libcudart", "libnccl", "libopenblas", "libgomp",
                            "sentencepiece", "libslurm"})
    EXPECT_THAT(libraries.out, testing::Not(HasSubstr(heavy)));
  auto best = 1h + 0ms;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(holdfast({"--version"}).status, 0);
    best = std::min(best, std::chrono::duration_cast<std::chrono::milliseconds>(
                              std::chrono::steady_clock::now() - begin));
  }
  RecordProperty("version_ms", static_cast<int>(best.count()));
  EXPECT_LT(best, 500ms) << "it takes about 3 ms; sanitizers are slow";
}

struct Misuse {
  std::vector<std::string> arguments;
  int status;
  const char* says;
};

TEST(CommandLine, MistakesGetOneLineOnStderrAndTheirExitCode) {
  const std::vector<Misuse> cases = {
      {{"plann"}, 2, "there is no verb 'plann'. Did you mean 'holdfast plan'?"},
      {{"xyzzyxyzzy"}, 2, "there is no verb 'xyzzyxyzzy'. 'holdfast --help' lists the verbs"},
      {{"--bogus"}, 2, "--bogus"},
      {{"plan"}, 2, "no job file was given. Name one, or a program with --command?"},
      {{"plan", "--command", "a && b"}, 2, "no shell reads it, and '&' needs one"},
      {{"run", "--"}, 2, "Start it with 'holdfast submit'?"},
      {{"plan", "quickstart", "--bogus"}, 2, "'holdfast plan --help' says more"},
      {{"plan", "quickstrat"},
       2,
       "llama2-7b-nabuchodonosor, llama2-7b-pretrain, quickstart). Did you mean quickstart?"},
      {{"plan", "/no/such.toml"}, 2, "there is no job file /no/such.toml (it was looked for in /no)"},
      {{"plan", "quickstart", "--set", "train.seqence=1"},
       2,
       "unknown key train.seqence (--set train.seqence). Did you mean train.sequence?"},
      {{"plan", "quickstart", "--spares", "-1"},
       2,
       "cluster.spares must be between 0 and 65536, not -1 (--spares). Use 0?"},
      {{"plan", "quickstart", "--set", "cluster.file=minipood"}, 2, "there is no cluster called 'minipood'"},
      {{"plan", "quickstart", "--spares", "126"}, 3, "nodes + spares = 128 but minipod has 127 nodes"},
      {{"plan", "quickstart", "-w", "dgx[1"}, 2, "dgx[1"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.says);
    const auto result = holdfast(c.arguments);
    EXPECT_EQ(result.status, c.status);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("holdfast: "));
    EXPECT_THAT(result.err, HasSubstr(c.says));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  const auto nothing = holdfast({});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("Usage:"));
}

TEST(CommandLine, PlanTakesSlurmsSpelling) {
  const auto text = holdfast(
      {"plan", "quickstart", "-N", "3", "--spares=1", "--set", "train.lanes=4", "--set=run.name=mine"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, StartsWith("mine: tiny on minipod, 3 active nodes + 1 spare, 6 ranks"));
  const auto json = holdfast({"plan", "quickstart", "--json", "-w", "dgx[005-006,010-011]"});
  EXPECT_EQ(json.status, 0) << json.err;
  const auto plan = nlohmann::json::parse(json.out);
  EXPECT_EQ(plan.at("schema_version"), 12);
  EXPECT_EQ(plan.at("nodes").at(0).at("name"), "dgx006");
  EXPECT_EQ(plan.at("nodes").at(0).at("scalable_unit"), "su3");
  EXPECT_THAT(holdfast({"plan", "quickstart", "--ranks"}).out, HasSubstr("replica group"));
}

TEST(CommandLine, NothingOfASettingIsEvaluated) {
  const test::Scratch dir;
  const auto job = dir.write("a \"job\" $(touch x).toml", "[run]\nname = \"a 'b' $(touch /tmp/never)\"\n");
  const auto plan = holdfast({"plan", job.string()});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, StartsWith("a 'b' $(touch /tmp/never): tiny on minipod"));
}

TEST(CommandLine, ANameHasNoControlCharacters) {
  for (const char* name : {"two\\nlines", "\\u001b[31mred", "\\u009b31mred", "\\u202Eneerg"}) {
    const auto plan = holdfast({"plan", "quickstart", "--set", std::string("run.name=\"") + name + "\""});
    EXPECT_EQ(plan.status, 2) << name;
    EXPECT_THAT(plan.err, HasSubstr("run.name must be a name without control characters")) << name;
  }
}

TEST(CommandLine, ConfigShowTellsOrigins) {
  const test::Scratch dir;
  const auto job = dir.write("job.toml", "[train]\nsteps = 1\nsequence = 64\n");
  const auto show = holdfast({"config", "show", job.string(), "--origin", "--set", "train.global_batch=16"},
                             {"HOLDFAST_SET_TRAIN__SEQUENCE=32"});
  EXPECT_EQ(show.status, 0) << show.err;
  const auto line = [](const std::string& setting, const std::string& origin) {
    return HasSubstr(setting + std::string(40 - setting.size(), ' ') + "  # " + origin + "\n");
  };
  EXPECT_THAT(show.out, line("steps = 1", job.string() + ":2"));
  EXPECT_THAT(show.out, line("sequence = 32", "environment HOLDFAST_SET_TRAIN__SEQUENCE"));
  EXPECT_THAT(show.out, line("global_batch = 16", "flag"));
  EXPECT_THAT(show.out, line("micro_batch = 1", "default"));
  const auto json =
      nlohmann::json::parse(holdfast({"config", "show", job.string(), "--origin", "--json"}).out);
  EXPECT_EQ(json.at("settings").at("train").at("steps").at("value"), 1);
  EXPECT_EQ(json.at("settings").at("train").at("steps").at("origin"), job.string() + ":2");
  const auto again = dir.write("again.toml", holdfast({"config", "show", job.string()}).out);
  EXPECT_EQ(holdfast({"config", "show", again.string()}).out, holdfast({"config", "show", job.string()}).out)
      << "what is shown can be run";
}

}  // namespace
}  // namespace holdfast
