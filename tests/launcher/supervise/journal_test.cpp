// The records of a run: the event log, the terms, the list of nodes, and the output of `holdfast status`.
#include "launcher/supervise/journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/status_view.hpp"
#include "src/base/error.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/launcher/golden.hpp"
#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RunFolder : public testing::Test {
 protected:
  RunFolder() : run{folder_.path} {
    files::fs::create_directories(run.terms());
    files::fs::create_directories(run.events());
  }
  void put(const files::fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  control::test::Folder folder_;
  RunDir run;
};

using JournalTest = RunFolder;

TEST_F(JournalTest, IsNotWrittenThroughALink) {
  put(run.path / "elsewhere", "mine\n");
  files::fs::create_symlink(run.path / "elsewhere", run.events() / "0003.jsonl");
  EXPECT_THROW(Journal(run, 3), Error);
  EXPECT_EQ(files::read_text(run.path / "elsewhere"), "mine\n");
}

TEST_F(JournalTest, CompletesWhatItWrites) {
  Journal journal(run, 3);
  const json first = to_json(journal.write(events::LeaderElected{"n0", "7.0", 1, {}}, 1700000000.25));
  const json second = to_json(journal.write(events::NodeLost{"n1", {}, 0, "a\nb\xff"}));
  EXPECT_EQ(first["term"], 3);
  EXPECT_EQ(first["seq"], 1);
  EXPECT_EQ(first["schema_version"], 1);
  EXPECT_EQ(first["unix"], 1700000000.25);
  EXPECT_EQ(first["time"], "2023-11-14T22:13:20.250000Z");
  EXPECT_EQ(second["seq"], 2);
  EXPECT_GT(second["unix"], 1700000000.25);
  const std::string text = files::read_text(run.events() / "0003.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  const auto events = read_events(run);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(to_json(events[0]), first);
  EXPECT_EQ(to_json(events[1])["evidence"], "a\nb\xef\xbf\xbd");
}

TEST_F(JournalTest, FoldsAllTermsInOrder) {
  Journal(run, 2).write(
      test::entry(
          {{"event", "attempt_ended"}, {"attempt", 1}, {"cause", "node lost"}, {"node", "n1"}, {"step", 20}})
          .event);
  Journal(run, 10).write(
      test::entry({{"event", "attempt_planned"}, {"attempt", 2}, {"term", 10}, {"placement", {"n0", "n2"}}})
          .event);
  Journal first(run, 1);
  first.write(events::LeaderElected{"n0", "7.0", 1, {}}, 100.0);
  first.write(
      test::entry({{"event", "attempt_planned"}, {"attempt", 1}, {"term", 1}, {"placement", {"n0", "n1"}}})
          .event);
  const RunState state = replay(run);
  EXPECT_EQ(state.job, "7.0");
  EXPECT_EQ(state.began_at, 100.0);
  ASSERT_EQ(state.attempts.size(), 2u);
  EXPECT_EQ(state.attempts[0].cause, "node lost");
  EXPECT_EQ(state.attempts[1].term, 10);
  EXPECT_THAT(state.attempts[1].placement, ElementsAre("n0", "n2"));
  EXPECT_TRUE(state.attempt_live());
}

TEST_F(JournalTest, TornAndDamagedLinesAreLeftOut) {
  const auto lost = [](const char* node) {
    return line_of(test::entry({{"event", "node_lost"}, {"node", node}}));
  };
  put(run.events() / "0001.jsonl", lost("n1") + "\n" + lost("n2"));
  put(run.events() / "0002.jsonl", lost("n3") + "\nnot json\n[1]\n\n{\"event\":\"of a later version\"}\n");
  put(run.events() / "0003.jsonl", "");
  put(run.events() / "0004.jsonl", lost("n4") + "\n{\"eve");
  EXPECT_THAT(replay(run).lost, ElementsAre("n1", "n3", "n4"))
      << "what has no end of line was never acted upon";
}

TEST_F(JournalTest, AMalformedEventIsNamedAndMended) {
  const auto file = run.events() / "0001.jsonl";
  Journal(run, 1).write(events::LeaderElected{"n0", "7.0", 1, {}}, 100.0);
  const std::string good = files::read_text(file);
  const json lost = to_json(test::entry({{"event", "node_lost"}, {"node", "n1"}}));
  json wrong = lost;
  wrong["node"] = 3;
  put(file, good + wrong.dump() + "\n");
  try {
    replay(run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string() + " is malformed in line 2"));
    EXPECT_THAT(error.what(), HasSubstr("node is 3, not a text"));
    EXPECT_THAT(error.what(), HasSubstr("Mend that line?"));
  }
  put(file, good + lost.dump() + "\n");
  EXPECT_THAT(replay(run).lost, ElementsAre("n1"));
}

TEST_F(JournalTest, LossThatIsNoNumberSurvives) {
  Journal(run, 1).write(test::entry({{"event", "final_state"},
                                     {"step", 5},
                                     {"tokens", 500},
                                     {"loss", std::nan("")},
                                     {"state_digest", "ab"}})
                            .event);
  const RunState state = replay(run);
  ASSERT_TRUE(state.final_state);
  EXPECT_TRUE(std::isnan(state.final_state->loss));
  EXPECT_EQ(result_of(state)["final_loss"], nullptr);
  EXPECT_EQ(result_of(state)["final_step"], 5);
}

TEST_F(JournalTest, AFollowerReadsWhatIsNew) {
  const auto line = [](const char* node) { return line_of(Event(events::NodeLost{node, {}, 0, ""})); };
  const auto entry = [&](int term, int seq, const char* node) {
    json object = json::parse(line(node));
    object.update({{"schema_version", 1}, {"term", term}, {"seq", seq}, {"unix", 1.0}, {"time", ""}});
    return object.dump() + "\n";
  };
  const auto lost = [](const EventFollower& follower) {
    std::string out;
    for (const auto& seen : follower.events()) out += std::get<events::NodeLost>(seen.event).node + " ";
    return out;
  };
  const auto first = run.events() / "0001.jsonl";
  EventFollower follower(run);
  EXPECT_FALSE(follower.look()) << "nothing is there";
  put(first, entry(1, 1, "n1") + entry(1, 2, "n2").substr(0, 20));
  EXPECT_TRUE(follower.look());
  EXPECT_EQ(lost(follower), "n1 ") << "the second line is not complete";
  EXPECT_FALSE(follower.look());
  put(first, entry(1, 1, "n1") + entry(1, 2, "n2"));
  put(run.events() / "0002.jsonl", entry(2, 1, "n3"));
  EXPECT_TRUE(follower.look());
  EXPECT_EQ(lost(follower), "n1 n2 n3 ");
  put(first, entry(1, 1, "n1"));
  EXPECT_TRUE(follower.look()) << "a leader has cut off a line";
  EXPECT_EQ(lost(follower), "n1 n3 ");
  put(first, entry(1, 1, "n1") + "{\"event\":\"node_lost\"}\n");
  for (int again = 0; again < 2; ++again) EXPECT_THROW(follower.look(), Error);
  EXPECT_EQ(lost(follower), "n1 n3 ") << "what was read before stays";
}

TEST_F(JournalTest, NothingYet) {
  files::fs::remove_all(run.events());
  files::fs::remove_all(run.terms());
  EXPECT_TRUE(read_events(run).empty());
  EXPECT_EQ(highest_term(run), 0);
  EXPECT_THROW(take_term(run, 1, "n0"), Error);
  EXPECT_THROW(Journal(run, 1), Error);
}

TEST_F(JournalTest, ATermIsTakenOnce) {
  EXPECT_TRUE(take_term(run, 1, "n0"));
  EXPECT_FALSE(take_term(run, 1, "n1"));
  EXPECT_EQ(json::parse(files::read_text(run.terms() / "0001"))["node"], "n0");
  EXPECT_TRUE(take_term(run, 12, "n1"));
  put(run.terms() / "0099.tmp", "");
  put(run.terms() / "note", "");
  EXPECT_EQ(highest_term(run), 12);
  EXPECT_TRUE(take_term(run, 12345, "n1"));
  EXPECT_EQ(highest_term(run), 12345);
  EXPECT_EQ(highest_valid_term(run), 12345);
  renounce_term(run, 12345, "n1");
  EXPECT_FALSE(take_term(run, 12345, "n2")) << "now or later";
  EXPECT_EQ(highest_term(run), 12345);
  EXPECT_EQ(highest_valid_term(run), 12);
}

TEST_F(JournalTest, OneOfTwoTakesTheTerm) {
  for (int term = 1; term <= 20; ++term) {
    std::atomic<int> won = 0;
    const auto candidate = [&](const char* node) {
      if (take_term(run, term, node)) ++won;
    };
    std::thread other(candidate, "n1");
    candidate("n0");
    other.join();
    EXPECT_EQ(won, 1);
  }
}

// nodes.json.

Roster example() {
  return {"7.1",
          {{"dgx001", "10.0.0.1", 21007, "SU1"},
           {"dgx002", "10.0.0.2", 21007, "SU1"},
           {"dgx005", "dgx005", 21007, ""}},
          {0, 2},
          {1, 0, 2},
          1,
          8,
          {.restored = 10,
           .saved = 9,
           .tokens = 8,
           .sent = 7,
           .state = 6,
           .operations = 5.5,
           .peers = 4,
           .read_s = 3,
           .written_s = 2,
           .gpu = true,
           .patience_s = 1}};
}

using RosterTest = RunFolder;

TEST_F(RosterTest, RoundTrip) {
  put(run.nodes(), to_json_text(example()));
  const Roster back = read_roster(run);
  EXPECT_EQ(to_json_text(back), to_json_text(example()));
  EXPECT_EQ(back.slots(), 2);
  EXPECT_EQ(back.world(), 16);
  EXPECT_EQ(back.node_called("dgx005"), 2);
  EXPECT_EQ(back.node_called("dgx00"), -1);
  EXPECT_EQ(back.nodes[1].address, "10.0.0.2");
  EXPECT_EQ(back.batch_host, 1);
  EXPECT_EQ(back.work, example().work);
}

TEST_F(RosterTest, DamageIsNamed) {
  const auto expect_error = [this](const std::string& text, const char* what) {
    put(run.nodes(), text);
    try {
      read_roster(run);
      ADD_FAILURE() << "it was read: " << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what)) << text;
      EXPECT_EQ(error.exit(), Exit::runtime);
    }
  };
  const std::string whole = to_json_text(example());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 3})
    expect_error(whole.substr(0, size), "is damaged");
  const json good = json::parse(whole);
  for (const auto& [key, value] : good.items()) {
    if (key == "schema_version") continue;
    json bad = good;
    bad.erase(key);
    expect_error(bad.dump(), key.c_str());
    bad[key] = nullptr;
    expect_error(bad.dump(), "is damaged");
  }
  for (const auto& [path, value] : std::vector<std::pair<std::string, json>>{{"/placement", json::array()},
                                                                             {"/placement/0", 3},
                                                                             {"/placement/1", -1},
                                                                             {"/candidates/0", 7},
                                                                             {"/ranks_per_node", 0},
                                                                             {"/nodes/0/port", "x"},
                                                                             {"/work/peers", "x"},
                                                                             {"/nodes/1", nullptr}}) {
    json bad = good;
    bad[json::json_pointer(path)] = value;
    expect_error(bad.dump(), "is damaged");
  }
  std::filesystem::remove(run.nodes());
  expect_error("", "is damaged");
  std::filesystem::remove(run.nodes());
  EXPECT_THROW(read_roster(run), Error);
}

// The output of `holdfast status`.

RunState story(const std::vector<json>& events) {
  RunState state;
  for (const auto& event : events) apply(state, test::entry(event));
  return state;
}

std::vector<json> a_loss() {
  return {
      {{"event", "leader_elected"}, {"node", "dgx002"}, {"job", "17.1"}, {"nodes", 3}, {"unix", 1000.0}},
      {{"event", "attempt_planned"},
       {"attempt", 1},
       {"term", 1},
       {"placement", {"dgx001", "dgx005"}},
       {"unix", 1001.0}},
      {{"event", "restored"},
       {"attempt", 1},
       {"step", 0},
       {"level", "fresh"},
       {"digest", "00"},
       {"unix", 1003.0}},
      {{"event", "first_step"}, {"attempt", 1}, {"step", 1}, {"unix", 1004.0}},
      {{"event", "checkpoint_durable"}, {"attempt", 1}, {"step", 40}, {"stalled_s", 0.5}, {"unix", 1025.0}},
      {{"event", "node_lost"}, {"node", "dgx005"}, {"unix", 1030.0}},
      {{"event", "attempt_ended"},
       {"attempt", 1},
       {"cause", "node lost"},
       {"node", "dgx005"},
       {"step", 41},
       {"detected_s", 2.04},
       {"unix", 1030.0}},
      {{"event", "attempt_planned"},
       {"attempt", 2},
       {"term", 1},
       {"placement", {"dgx001", "dgx002"}},
       {"unix", 1030.0}},
      {{"event", "restored"},
       {"attempt", 2},
       {"step", 40},
       {"level", "shared"},
       {"digest", "00ff"},
       {"unix", 1032.0}},
      {{"event", "first_step"}, {"attempt", 2}, {"step", 41}, {"unix", 1033.2}}};
}

TEST(Status, AContinuedRunHasNoFinalStateYet) {
  auto events = a_loss();
  events.push_back({{"event", "final_state"},
                    {"step", 100},
                    {"tokens", 1000},
                    {"loss", 2.5},
                    {"state_digest", "0123456789abcdef"},
                    {"unix", 1080.0}});
  StatusFacts facts{"quickstart", 100, story(events), 1, example()};
  EXPECT_THAT(status_text(facts), HasSubstr("digest      0123456789abcdef"));
  events.push_back(
      {{"event", "attempt_planned"}, {"attempt", 3}, {"placement", {"dgx001"}}, {"unix", 1090.0}});
  facts.state = story(events);
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("digest")));
  EXPECT_TRUE(status_json(facts)["final_step"].is_null());
}

TEST(Status, NamesTheBestCheckpoint) {
  StatusFacts facts{"quickstart", 100, {}};
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("best")));
  EXPECT_TRUE(status_json(facts)["best"].is_null());
  facts.best = {40, 1.25};
  EXPECT_THAT(status_text(facts), HasSubstr("best        step 40, held-out loss 1.2500\n"));
  EXPECT_EQ(status_json(facts)["best"], nlohmann::json({{"step", 40}, {"held_out_loss", 1.25}}));
  facts.best = {40, std::nullopt};
  EXPECT_THAT(status_text(facts), HasSubstr("best        step 40\n"));
}

TEST(Status, SaysWhereCopiesAreOffAndWhy) {
  auto events = a_loss();
  events.push_back({{"event", "partner_copies"},
                    {"attempt", 2},
                    {"node", "dgx002"},
                    {"on", false},
                    {"evidence", "the other end is gone"},
                    {"unix", 1034.0}});
  StatusFacts facts{"quickstart", 100, story(events), 1, example()};
  EXPECT_THAT(status_text(facts), HasSubstr("copies      are off on dgx002: the other end is gone\n"));
  EXPECT_EQ(status_json(facts)["copies_off"]["dgx002"], "the other end is gone");
  events.push_back(
      {{"event", "partner_copies"}, {"attempt", 2}, {"node", "dgx002"}, {"on", true}, {"unix", 1095.0}});
  facts.state = story(events);
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("copies ")));
}

TEST(StatusGolden, Texts) {
  StatusFacts facts{"quickstart", 100, {}};
  std::string text = status_text(facts);
  facts.roster = example();
  facts.term = 1;
  facts.state = story(a_loss());
  facts.last_step = json{
      {"step", 57}, {"loss", 3.14159}, {"tokens_per_s", 1234.5}, {"time", "1970-01-01T00:17:33.500000Z"}};
  count_steps(facts);
  text += "\n" + status_text(facts);

  auto events = a_loss();
  events.push_back(
      {{"event", "attempt_ended"}, {"attempt", 2}, {"cause", "finished"}, {"step", 100}, {"unix", 1080.0}});
  events.push_back({{"event", "final_state"},
                    {"step", 100},
                    {"tokens", 1000},
                    {"loss", 2.5},
                    {"state_digest", "0123456789abcdef"},
                    {"unix", 1080.0}});
  events.push_back(
      {{"event", "run_finished"}, {"exit_code", 0}, {"status", "done"}, {"why", ""}, {"unix", 1080.0}});
  facts.state = story(events);
  facts.last_step = json{{"step", 100}, {"loss", nullptr}, {"tokens_per_s", 1234.5}};
  text += "\n" + status_text(facts);

  events = a_loss();
  events.push_back({{"event", "node_lost"}, {"node", "dgx001"}, {"unix", 1050.0}});
  events.push_back({{"event", "attempt_ended"},
                    {"attempt", 2},
                    {"cause", "node lost"},
                    {"node", "dgx001"},
                    {"step", 57},
                    {"detected_s", 2.1},
                    {"unix", 1050.0}});
  facts.state = story(events);
  facts.last_step.reset();
  text += "\n" + status_text(facts);
  events.push_back({{"event", "run_finished"},
                    {"exit_code", 5},
                    {"status", "out_of_spares"},
                    {"why", "no heartbeat of dgx001 for 2.1 s; no spare node is left"},
                    {"unix", 1050.0}});
  facts.state = story(events);
  text += "\n" + status_text(facts);
  holdfast::test::expect_golden(text, "status.txt");
}

/// The ranks are another program than holdfast-train.
void take_program(StatusFacts& facts, config::RankKind kind = config::RankKind::automatic) {
  config::RunConfig config;
  config.rank.command = {"train"};
  config.rank.kind = kind;
  take_settings(config, facts);
}

TEST(Status, SaysWhatAnotherProgramDoes) {
  StatusFacts facts{"mine", 100, {}};
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("program ")));
  take_program(facts);
  EXPECT_THAT(status_text(facts), HasSubstr("program     it does not speak: steps and saves are not known"));
  take_program(facts, config::RankKind::sigterm);
  EXPECT_THAT(status_text(facts), HasSubstr("saves on SIGTERM"));
  take_program(facts, config::RankKind::client);
  EXPECT_THAT(status_text(facts), HasSubstr("has not yet"));
  facts.state = story(a_loss());
  facts.last_step = json{{"step", 7}, {"loss", 2.5}};
  EXPECT_THAT(status_text(facts), HasSubstr("program     it speaks to its agents"));
  EXPECT_THAT(status_text(facts), HasSubstr("step        7, loss 2.5000"))
      << "how many there are is not known";
  facts.state.final_state = control::FinalState{7, 0, 2.5, ""};
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("digest"))) << "it has told none";
}

JobFacts job_in_state(const std::string& state, const std::string& reason = "") {
  return {.id = 17,
          .unanswered = "",
          .state = state,
          .reason = reason,
          .meaning = "",
          .start = std::nullopt,
          .pending = state == "PENDING",
          .live = state == "PENDING" || state == "RUNNING"};
}

TEST(Status, OfRanksThatHaveReportedNothing) {
  StatusFacts facts{
      "mine", 100,
      story({{{"event", "leader_elected"}, {"node", "n0"}, {"job", "17.0"}, {"unix", 1000.0}},
             {{"event", "attempt_planned"},
              {"attempt", 1},
              {"term", 1},
              {"placement", {"n0"}},
              {"unix", 1001.0}},
             {{"event", "placement_verified"}, {"attempt", 1}, {"ranks", 1}, {"unix", 1002.0}}})};
  EXPECT_EQ(headline(facts), "starting ranks");
  take_program(facts);
  facts.now = 1042;
  facts.job = job_in_state("COMPLETED");
  EXPECT_THAT(headline(facts), HasSubstr("running, and the program reports no progress"));
  count_steps(facts);
  EXPECT_NEAR(facts.state.time.total(), 2, 1e-6) << "nothing runs";
  facts.job = job_in_state("RUNNING");
  take_program(facts, config::RankKind::client);
  EXPECT_EQ(headline(facts), "starting; the program has reported nothing yet");
  count_steps(facts);
  EXPECT_NEAR(facts.state.time.total(), 2, 1e-6) << "it does not step yet";
  take_program(facts);
  count_steps(facts);
  EXPECT_NEAR(facts.state.time.of(TimeUse::productive), 40, 1e-6);
  EXPECT_THAT(status_text(facts), HasSubstr(" %, at most: which steps were done again is not known\n"));
}

TEST(Status, SaysThatSilenceIsNotTakenForAHang) {
  StatusFacts facts{"mine", 100, {}};
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("hangs ")));
  EXPECT_EQ(status_json(facts)["unjudged_s"], 0);
  facts.state.unjudged_s = 1500;
  EXPECT_THAT(status_text(facts), HasSubstr("hangs       no silence is taken for one before an attempt has "
                                            "shown signs of life for 25.0 min\n"));
  EXPECT_EQ(status_json(facts)["unjudged_s"], 1500);
}

TEST(Status, JsonHoldsTheResultAndMore) {
  StatusFacts facts{"quickstart", 100, story(a_loss()), 1, example()};
  const json j = status_json(facts);
  const json result = result_of(facts.state);
  for (const auto& [key, value] : result.items()) EXPECT_EQ(j[key], value) << key;
  EXPECT_EQ(j["state"], "training");
  EXPECT_EQ(j["spares"], json::array());
  EXPECT_EQ(j["lost"], json::array({"dgx005"}));
  EXPECT_EQ(j["nodes"], json::array({"dgx001", "dgx002"}));
  EXPECT_EQ(j["attempts"][0]["recovered_s"].get<double>(), 1033.2 - 1030.0);
  EXPECT_EQ(j["attempts"][0]["lost_steps"], 1);
  EXPECT_EQ(j["records"], (json{{"dgx005", "lost"}}));
}

TEST(Status, TheJobDecidesWhatGoesOn) {
  StatusFacts facts{"quickstart", 100, story(a_loss()), 1, example()};
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("job "))) << "nobody has asked";
  facts.job = job_in_state("RUNNING");
  EXPECT_EQ(headline(facts), "training");
  facts.job = job_in_state("PENDING", "Priority");
  facts.job->start = 0;
  EXPECT_THAT(headline(facts), testing::StartsWith("in the queue (Priority), expected 19"));
  facts.job->meaning = "others come first";
  EXPECT_THAT(status_text(facts),
              HasSubstr("job         17 PENDING (Priority: others come first), expected to"));
  EXPECT_EQ(status_json(facts)["slurm"]["meaning"], "others come first");
  EXPECT_THAT(headline(facts), testing::StartsWith("in the queue (others come first), expected"));
  facts.job = job_in_state("NODE_FAIL", "NodeDown");
  EXPECT_EQ(headline(facts), "its job has ended (NODE_FAIL); was training");
  EXPECT_THAT(status_text(facts), HasSubstr("job         17 NODE_FAIL (NodeDown)\n"));
  facts.job = job_in_state("");
  EXPECT_EQ(headline(facts), "no job; was training");
  EXPECT_THAT(status_text(facts), HasSubstr("job         17, which SLURM does not know any more\n"));
  facts.job->unanswered = "no route";
  EXPECT_EQ(headline(facts), "training") << "only the record speaks";
  EXPECT_THAT(status_text(facts), HasSubstr("SLURM was asked in vain: no route"));

  facts.state.outcome = RunOutcome{};
  facts.job = job_in_state("COMPLETED");
  EXPECT_EQ(headline(facts), "done");
  facts.job = job_in_state("PENDING");
  EXPECT_EQ(headline(facts), "done, and in the queue again");
  facts.state.outcome = RunOutcome{93, "stopped", "an order"};
  EXPECT_EQ(headline(facts), "stopped, and in the queue again");
  facts.job = job_in_state("RUNNING");
  EXPECT_EQ(headline(facts), "stopped (exit 93: an order)") << "the job is about to end";
  facts.job->id = 18;
  EXPECT_EQ(headline(facts), "starting; was stopped (exit 93: an order)");
}

TEST(Status, OfARunWithoutAgents) {
  StatusFacts facts{"bare", 100, {}};
  EXPECT_EQ(headline(facts), "waiting for nodes");
  facts.last_step = json{{"step", 90}, {"step_s", 2.0}, {"loss", 2.5}, {"time", "2026-11-25T00:17:33.5Z"}};
  count_steps(facts);
  EXPECT_EQ(headline(facts), "trained without agents");
  EXPECT_EQ(facts.state.time.total(), 0) << "nobody has written down when it began";
  EXPECT_EQ(status_json(facts)["steps"], 100);
  take_program(facts);
  EXPECT_TRUE(status_json(facts)["steps"].is_null()) << "only the program knows";
}

TEST(Status, AgesAndTheTimeThatIsLeft) {
  StatusFacts facts{"quickstart", 100, story(a_loss()), 1, example()};
  facts.last_step = json{{"step", 90}, {"step_s", 2.0}, {"loss", 2.5}, {"time", "1970-01-01T00:17:33.5Z"}};
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("ago"))) << "now is not known";
  facts.now = 1063;
  EXPECT_THAT(status_text(facts),
              AllOf(HasSubstr("tokens/s, 10.0 s ago\n"), HasSubstr("left        20.0 s\n")));
  EXPECT_EQ(status_json(facts)["left_s"], 20.0);
  facts.state.paused = true;
  EXPECT_THAT(status_text(facts), testing::Not(HasSubstr("left  "))) << "nobody knows how long";
}

TEST(Status, StepsCountUntilTheRunIsOver) {
  StatusFacts facts{"quickstart", 100, story(a_loss()), 1, example()};
  const double before = facts.state.time.total();
  for (const json& none : {json(), json{{"step", 1}}, json{{"time", 5}}, json{{"time", "yesterday"}},
                           json{{"time", "1970-01-01T00:00:00Z"}}}) {
    facts.last_step = none.is_null() ? std::nullopt : std::optional(none);
    count_steps(facts);
    EXPECT_EQ(facts.state.time.total(), before) << none;
  }
  facts.last_step = json{{"time", "1970-01-01T00:17:33.500000Z"}};
  count_steps(facts);
  EXPECT_NEAR(facts.state.time.total(), 1053 - 1000, 1e-6);
  facts.state.outcome = RunOutcome{};
  facts.last_step = json{{"time", "1970-01-01T00:20:00.000000Z"}};
  count_steps(facts);
  EXPECT_NEAR(facts.state.time.total(), 1053 - 1000, 1e-6);
}

}  // namespace
}  // namespace holdfast::launcher
