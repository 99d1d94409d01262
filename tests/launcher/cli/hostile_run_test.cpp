// Verbs on run directories that others have filled: what they print does nothing to a terminal, and no text
// makes them fail in a way that they have no words for.
#include <gmock/gmock.h>

#include <fstream>

#include "src/base/files.hpp"
#include "src/base/printable.hpp"
#include "src/base/run_dir.hpp"
#include "src/base/subprocess.hpp"
#include "tests/config/scratch.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// An escape sequence, one byte of C1 for the same, an override of the direction of text, a lone byte.
const std::string evil =
    "\x1b]0;owned\x07\x1b[2J\xc2\x9b"
    "31m\xe2\x80\xaegpj.exe\xe2\x81\xa6\x9b\x7f";
// The same in JSON.
const std::string evil_json = R"(\u001b]0;owned\u0007\u001b[2J\u009b31m\u202egpj.exe\u2066\u007f)";

class HostileRun : public ::testing::Test {
 protected:
  HostileRun() {
    write("config.toml", "[run]\nname = \"plain\"\n[rank]\ncommand = [\"a\\u001b[31m\", \"b\\u009b\"]\n");
    write("owner.json", R"({"schema_version":1,"job_id":17,"host":"n0","pid":1,"since":1})");
    event(1, R"("event":"leader_elected","node":")" + evil_json +
                 R"(","pid":1,"nodes":1,"job":"17.0","after":{"term":0,"seq":0})");
    event(2, R"("event":"attempt_planned","attempt":1,"placement":[")" + evil_json + R"("],"wait_s":0)");
    event(3, R"("event":"attempt_ended","attempt":1,"step":3,"cause":")" + evil_json + R"(","node":")" +
                 evil_json + R"(","rank":0,"kind":"program","blamed":true,"blame":"node","detected_s":0,)" +
                 R"("decided_s":0,"evidence":[")" + evil_json + R"("],"advice":")" + evil_json + "\"");
    event(4, R"("event":"node_suspected","node":"n1","evidence":")" + evil_json + "\"");
    event(5, R"("event":"run_finished","status":"failed","exit_code":1,"why":")" + evil_json + "\"");
    write("logs/job-17.log", "a line\n" + evil + "\n");
    write("logs/attempt-0001/rank-00000.log", "a line\n" + evil + "\n");
    tools.answer("squeue", "17|" + evil + "|" + evil + "|1795624800|(null)|" + evil + "\n");
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((run / name).parent_path());
    std::ofstream(run / name, std::ios::app) << text;
  }
  void event(int seq, const std::string& fields) {
    write("events/0001.jsonl", R"({"schema_version":1,"term":1,"time":"","unix":1700000000,"seq":)" +
                                   std::to_string(seq) + "," + fields + "}\n");
  }
  /// `terminal`: standard output is one.
  Finished holdfast(const std::vector<std::string>& words, bool terminal = false) {
    Command command;
    command.argv = {HOLDFAST_PROGRAM};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    if (terminal) {
      std::string line;
      for (const auto& word : command.argv) line += (line.empty() ? "'" : " '") + word + "'";
      command.argv = {"script", "-qec", line, "/dev/null"};
    }
    return holdfast::run(command, std::chrono::seconds(60));
  }

  test::Scratch scratch;
  test::FakeTools tools;
  fs::path run = scratch.path() / "run";
};

TEST_F(HostileRun, NoVerbPassesAControlCharacter) {
  const std::string dir = run.string(), markdown = (scratch.path() / "report.md").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status", dir},
                                                {"status", dir, "--json"},
                                                {"ls", scratch.path().string()},
                                                {"ls", scratch.path().string(), "--json"},
                                                {"events", dir},
                                                {"report", dir},
                                                {"report", dir, "--markdown"},
                                                {"config", "show", dir + "/config.toml"},
                                                {"plan", dir + "/config.toml"},
                                                {"status", scratch.path().string() + "/" + evil},
                                                {"no" + evil},
                                                {"logs", dir, "--node", evil},
                                                {"status", dir, "--no" + evil}}) {
    const Finished done = holdfast(words);
    for (const std::string& text : {done.out, done.err})
      EXPECT_EQ(text, printable(text)) << words[0] << " " << words.back();
    EXPECT_THAT(done.err, Not(HasSubstr("internal error"))) << words[0];
  }
  EXPECT_EQ(holdfast({"report", dir, "--markdown", "-o", markdown}).status, 0);
  const std::string text = files::read_text(markdown);
  EXPECT_EQ(text, printable(text));
  EXPECT_THAT(text, HasSubstr("gpj.exe"));
  EXPECT_THAT(holdfast({"status", dir}).out, HasSubstr("gpj.exe"));
}

/// With lines that are no records: deep in each other, of other types, cut.
TEST_F(HostileRun, NoRecordEndsAVerbWithoutWords) {
  const std::string dir = run.string(), deep = std::string(300000, '[') + std::string(300000, ']');
  std::string deep_object;
  for (int i = 0; i < 300000; ++i) deep_object += "{\"a\":";
  deep_object += "1" + std::string(300000, '}');
  const std::string other_types =
      R"({"schema_version":"x","step":"7","attempt":{},"loss":"nan","tokens_per_s":"fast","step_s":[1],"time":7,)"
      R"("status":7,"job":[],"term":"1","exit_code":"x","attempts":{"a":1},"plan":[],"nodes":7,"job_id":"17",)"
      R"("host":1,"pid":"x","since":null,"events":3})";
  for (const std::string& text :
       {deep, deep_object, "{\"x\":" + deep + "}", other_types, std::string("{\"a\":")})
    for (const std::vector<std::string>& names :
         {std::vector<std::string>{"metrics.jsonl", "logs/metrics.jsonl", "result.json", "plan.json",
                                   "owner.json"},
          {"events/0002.jsonl", "term/0002"},
          {"nodes.json"}}) {
      for (const auto& name : names) {
        if (name.ends_with(".json")) fs::remove(run / name);
        write(name, text + "\n");
      }
      for (const std::vector<std::string>& words : {std::vector<std::string>{"status", dir},
                                                    {"status", dir, "--json"},
                                                    {"ls", scratch.path().string()},
                                                    {"events", dir},
                                                    {"report", dir},
                                                    {"report", dir, "--markdown"},
                                                    {"logs", dir}}) {
        const Finished done = holdfast(words);
        EXPECT_LT(done.status, 128) << words[0] << " " << names[0] << " " << text.substr(0, 20);
        EXPECT_THAT(done.err, Not(HasSubstr("internal error"))) << words[0] << " " << names[0];
      }
      for (const auto& name : names) fs::remove(run / name);
    }
}

TEST_F(HostileRun, ALogIsFilteredOnATerminalAndRawInAPipe) {
  EXPECT_EQ(holdfast({"logs", run.string()}).out, "a line\n" + evil + "\n");
  const std::string shown = holdfast({"logs", run.string()}, true).out;
  EXPECT_THAT(shown, HasSubstr("gpj.exe"));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown, Not(HasSubstr("\xc2\x9b")));
  EXPECT_THAT(shown, Not(HasSubstr("\xe2\x80\xae")));
}

}  // namespace
}  // namespace holdfast
