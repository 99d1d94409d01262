// The client for any program, in C and in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/client/client_fixture.hpp"

namespace holdfast::control {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_P(ClientTest, SaysWhoItIsWhereItIsAndWhatItMeasures) {
  connect();
  loop.call([this] {
    ASSERT_EQ(agent->hellos.size(), 1u);
    const Hello& hello = agent->hellos[0];
    EXPECT_EQ(hello.role, Hello::Role::rank);
    EXPECT_EQ(hello.node, "dgx001");
    EXPECT_EQ(hello.rank, 3);
    EXPECT_EQ(hello.attempt, 5);
    EXPECT_EQ(hello.term, 2);
    EXPECT_EQ(hello.pid, program->pid());
    EXPECT_EQ(agent->channel->proved_rank(), (RankId{3, 5}));
    EXPECT_EQ(agent->channel->peer(), program->pid());
    EXPECT_EQ(agent->progress.step, -1);
    EXPECT_EQ(agent->progress.phase, Phase::starting);
  });
  EXPECT_EQ(program->ask("newest"), "300");
  program->tell("restored 17 shared");
  program->tell("at 17 backward");
  program->tell("at 18 optimizer");
  program->tell("metrics 2.5 4096 0.25");
  EXPECT_TRUE(until([this] {
    return agent->progress.step == 18 && agent->progress.phase == Phase::optimizer &&
           agent->progress.moves == 2 && agent->progress.compute_us == 250000 &&
           !agent->all<RankMetrics>().empty();
  }));
  const auto restored = all<RankRestored>();
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_EQ(restored[0].from.step, 17);
  EXPECT_EQ(restored[0].from.level, "shared");
  const auto metrics = all<RankMetrics>();
  ASSERT_EQ(metrics.size(), 1u) << "said once";
  EXPECT_EQ(metrics[0].step, 18);
  EXPECT_EQ(metrics[0].loss, 2.5);
  EXPECT_EQ(metrics[0].tokens, 4096);
  program->tell("metrics nan 8192 0");
  EXPECT_TRUE(until([this] { return agent->all<RankMetrics>().size() == 2; }));
  EXPECT_TRUE(std::isnan(all<RankMetrics>()[1].loss));
}

TEST_P(ClientTest, AProgramThatJustStepsHasTheStateOfItsFirstStep) {
  connect();
  program->tell("at -1 data");
  program->tell("at 40 forward");
  program->tell("at 41 forward");
  ASSERT_TRUE(until([this] { return !agent->all<RankRestored>().empty(); }));
  EXPECT_EQ(all<RankRestored>()[0].from.step, 40);
  EXPECT_EQ(all<RankRestored>()[0].from.level, "shared");
}

TEST_P(ClientTest, VotesAndHearsTheOutcome) {
  connect();
  program->tell("vote 20 3 1048576 /shared/\"a b\"/step-20");
  program->tell("vote_failed 30 no space left");
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  const auto votes = all<RankVote>();
  EXPECT_TRUE(votes[0].ok);
  EXPECT_EQ(votes[0].step, 20);
  const json payload = json::parse(votes[0].payload);
  EXPECT_EQ(payload,
            (json{{"kind", "files"}, {"path", "/shared/\"a b\"/step-20"}, {"files", 3}, {"bytes", 1048576}}));
  EXPECT_FALSE(votes[1].ok);
  EXPECT_EQ(votes[1].payload, "no space left");
  EXPECT_EQ(program->ask("outcome 20"), "0");
  say(CommitOutcome{5, 20, true, ""});
  say(CommitOutcome{5, 30, false, "rank 3: no space left"});
  EXPECT_TRUE(answers("outcome 30", "2"));
  EXPECT_EQ(program->ask("outcome 20"), "1");
  EXPECT_EQ(program->ask("outcome 40"), "0");
}

TEST_P(ClientTest, FilesAreVotedOnByNameWithTheirDigests) {
  connect();
  files::fs::create_directories(folder.path / "own/meta");
  files::replace_atomically(folder.path / "own/model.pt", "abc");
  files::replace_atomically(folder.path / "own/meta/\"x\"", "");
  files::fs::create_directory_symlink("own", folder.path / "latest");
  const std::string path = files::fs::canonical(folder.path / "own").string();
  program->tell("vote_file 20 model.pt");
  program->tell("vote_file 30 not there");
  program->tell("vote_file 20 meta/\"x\"");
  program->tell("vote 20 0 0 " + (folder.path / "latest").string());
  files::fs::remove(folder.path / "latest");
  program->tell("vote 30 0 0 " + path);
  program->tell("vote 40 2 5 " + path);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 3; }));
  std::map<std::int64_t, RankVote> votes;
  for (const auto& vote : all<RankVote>()) votes[vote.step] = vote;
  ASSERT_TRUE(votes[20].ok) << votes[20].payload;
  // FIPS 180-4, cut to 256 bits.
  const char* const of_abc = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a";
  const char* const of_nothing = "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce";
  EXPECT_EQ(json::parse(votes[20].payload),
            (json{{"kind", "files"},
                  {"path", path},
                  {"files", 2},
                  {"bytes", 3},
                  {"list", json::array({json::array({"model.pt", 3, of_abc}),
                                        json::array({"meta/\"x\"", 0, of_nothing})})}}));
  EXPECT_FALSE(votes[30].ok);
  EXPECT_THAT(votes[30].payload, HasSubstr("not there"));
  EXPECT_EQ(json::parse(votes[40].payload),
            (json{{"kind", "files"}, {"path", path}, {"files", 2}, {"bytes", 5}}));
}

TEST_P(ClientTest, NamesOfFilesAreMadePlainAndWhatNoManifestHoldsIsCounted) {
  connect();
  files::fs::create_directories(folder.path / "own/meta");
  for (const char* name : {"own/model.pt", "own/meta/x", "own/a\tb", "beside"})
    files::replace_atomically(folder.path / name, "abc");
  const std::string path = files::fs::canonical(folder.path / "own").string();
  for (const char* name : {"20 ./model.pt", "50 meta/../model.pt", "30 model.pt", "30 ../beside", "40 a\tb"})
    program->tell(std::string("vote_file ") + name);
  program->tell("vote_file 20 " + path + "/meta//x");
  program->tell("vote 40 0 0 " + path);
  program->tell("vote_file 50 meta/x");
  for (const char* step : {"20", "30", "50"}) program->tell(std::string("vote ") + step + " 0 0 " + path);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 4; }));
  std::map<std::int64_t, json> votes;
  for (const auto& vote : all<RankVote>()) {
    ASSERT_TRUE(vote.ok) << vote.payload;
    votes[vote.step] = json::parse(vote.payload);
  }
  const auto names = [&](std::int64_t step) {
    std::vector<std::string> out;
    for (const json& file : votes[step]["list"]) out.push_back(file[0]);
    return out;
  };
  EXPECT_THAT(names(20), ElementsAre("model.pt", "meta/x"));
  EXPECT_THAT(names(50), ElementsAre("model.pt", "meta/x"));
  EXPECT_EQ(votes[30], (json{{"kind", "files"}, {"path", path}, {"files", 2}, {"bytes", 6}}));
  EXPECT_EQ(votes[40], (json{{"kind", "files"}, {"path", path}, {"files", 1}, {"bytes", 3}}));
}

TEST_P(ClientTest, TheEndWaitsForFilesThatAreRead) {
  connect();
  const auto path = folder.path / "large";
  files::replace_atomically(path, "");
  files::fs::resize_file(path, 300 << 20);  // some tenths of a second to hash, and it is not told before
  program->tell("vote_file 20 large");
  program->tell("vote 20 0 0 " + folder.path.string());
  program->tell("at 20 finishing");
  EXPECT_EQ(program->exit_with(75), 75);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 1; }));
  EXPECT_TRUE(std::ranges::any_of(all<RankProgress>(), [](const RankProgress& at) {
    return at.phase == Phase::finishing && at.moves > 1;
  })) << "it is not hung";
  EXPECT_TRUE(all<RankVote>()[0].ok);
  EXPECT_EQ(json::parse(all<RankVote>()[0].payload)["bytes"], 300 << 20);
}

TEST_P(ClientTest, OrdersAreGivenOutOnceOrStay) {
  connect();
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ");
  say(Pause{true});
  EXPECT_TRUE(answers("orders", "1 0 0 1 -1 "));
  say(Pause{false});
  EXPECT_TRUE(answers("orders", "0 0 0 0 -1 "));
  say(Drain{false, "an order of mia"});
  EXPECT_TRUE(answers("orders", "1 1 0 0 -1 an order of mia"));
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ") << "it is given out once";
  say(Drain{false, "an order of mia"});  // a new agent repeats it
  say(Drain{false, "another"});
  EXPECT_TRUE(answers("orders", "1 1 0 0 -1 another"));
  say(Pause{true});
  EXPECT_TRUE(answers("orders", "1 0 0 1 -1 "));
  say(Drain{true, "SIGTERM", static_cast<std::int64_t>(unix_seconds()) + 86400});
  ASSERT_TRUE(until([this] { return asked_outside("orders").starts_with("1 1 1 0 86"); })) << "and no pause";
  EXPECT_TRUE(asked_outside("orders").starts_with("1 0 1 0 86")) << "the order to stop stays";
  say(Drain{true, "another"});
  say(CommitOutcome{5, 50, true, ""});
  EXPECT_TRUE(answers("outcome 50", "1"));
  EXPECT_THAT(program->ask("orders"), HasSubstr("SIGTERM"));
}

TEST_P(ClientTest, AnOrderIsConfirmedWhenTheProgramHasTakenIt) {
  using What = RankHeard::What;
  const auto taken = [this] {
    std::vector<What> out;
    for (const auto& heard : all<RankHeard>()) out.push_back(heard.what);
    return out;
  };
  connect();
  say(Drain{false, "an order of mia"});
  const int before = loop.call([this] { return agent->beats; });
  ASSERT_TRUE(until([&] { return agent->beats > before + 3; }));
  EXPECT_TRUE(taken().empty()) << "the program has not asked";
  EXPECT_TRUE(answers("orders", "1 1 0 0 -1 an order of mia"));
  ASSERT_TRUE(until([&] { return agent->all<RankHeard>().size() == 1; }));
  EXPECT_THAT(taken(), ElementsAre(What::save));
  stop_agent();
  start_agent();
  ASSERT_TRUE(until([&] { return agent->all<RankHeard>().size() == 1; })) << "the next agent hears it, too";
  say(Pause{true});
  EXPECT_TRUE(answers("orders", "1 0 0 1 -1 "));
  say(Pause{false});
  EXPECT_TRUE(answers("orders", "0 0 0 0 -1 "));
  say(Drain{false, "another"});
  EXPECT_TRUE(answers("orders", "1 1 0 0 -1 another"));
  ASSERT_TRUE(until([&] { return agent->all<RankHeard>().size() == 3; }));
  EXPECT_THAT(taken(), ElementsAre(What::save, What::pause, What::save));
  say(Drain{true, "SIGTERM"});
  ASSERT_TRUE(until([this] { return asked_outside("orders").starts_with("1 "); }));
  ASSERT_TRUE(until([this] { return agent->all<RankHeard>().size() >= 4; }));
  ASSERT_TRUE(until([this] { return agent->all<RankHeard>().back().what == RankHeard::What::stop; }));
}

TEST_P(ClientTest, AProcessThatDoesNotSpeakForTheRankFallsSilent) {
  connect();
  program->tell("vote 20 1 1 a");
  say(Drain{true, "SIGTERM"});
  say(NotSpeaker{"process 1 speaks for rank 3; calls of the client in this process do nothing"});
  ASSERT_TRUE(until([this] { return agent->gone == 1; }));
  EXPECT_EQ(program->ask("open"), "0");
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ");
  program->tell("at 9 forward");
  program->tell("vote 30 1 1 b");
  program->tell("failed 1 of a worker");
  const double begin = steady_seconds();
  EXPECT_EQ(program->exit_with(0), 0);
  EXPECT_LT(steady_seconds() - begin, 1.5) << "nothing is awaited";
  loop.call([this] { EXPECT_EQ(agent->hellos.size(), 1u) << "it does not come again"; });
  EXPECT_TRUE(all<RankFailed>().empty());
}

TEST_P(ClientTest, TheNextAgentHearsWhatHasHadNoAnswer) {
  connect();
  program->tell("restored 10 shared");
  program->tell("vote 20 1 1 a");
  program->tell("vote 30 1 1 b");
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  say(CommitOutcome{5, 20, true, ""});
  ASSERT_TRUE(answers("outcome 20", "1"));
  stop_agent();
  program->tell("vote 40 1 1 c");  // said to nobody
  program->tell("at 41 data");
  start_agent();
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2 && agent->progress.step == 41; }));
  std::vector<std::int64_t> steps;
  for (const auto& vote : all<RankVote>()) steps.push_back(vote.step);
  EXPECT_THAT(steps, ElementsAre(30, 40));
  EXPECT_EQ(all<RankRestored>().size(), 1u);
}

TEST_P(ClientTest, LastWordsReachTheAgentBeforeTheProcessEnds) {
  connect();
  program->tell("at 9 finishing");
  program->tell("failed 93 the loss is not a number\tor \"so\"");
  std::thread answering([this] {
    EXPECT_TRUE(until([this] { return agent->all<RankFailed>().size() == 1; }));
    say(Taken{});
  });
  EXPECT_EQ(program->exit_with(93), 93);
  answering.join();
  EXPECT_EQ(all<RankFailed>()[0].exit_code, 93);
  EXPECT_EQ(all<RankFailed>()[0].why, "the loss is not a number\tor \"so\"");
  EXPECT_EQ(loop.call([this] { return agent->progress.step; }), 9);
}

TEST_P(ClientTest, Rank0BringsTheFinalState) {
  place.rank = 0;
  connect();
  program->tell("at 100 finishing");
  program->tell("metrics 1.5 51200 0");
  program->tell("finished 100");
  ASSERT_TRUE(until([this] { return agent->all<RankFinished>().size() == 1; }));
  const auto state = all<RankFinished>()[0].state;
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step, 100);
  EXPECT_EQ(state->tokens, 51200);
  EXPECT_EQ(state->loss, 1.5);
  say(Taken{});
  program->tell("close");
  EXPECT_EQ(program->ask("open"), "0") << "a client is opened once";
  EXPECT_EQ(program->exit_with(0), 0);
}

TEST_P(ClientTest, AnAgentThatDoesNotAnswerDelaysTheEndByTwoSecondsAtMost) {
  connect();
  program->tell("finished 1");
  EXPECT_EQ(program->exit_with(0), 0);  // it does end
}

TEST_P(ClientTest, AChildOfForkSaysNothing) {
  connect();
  program->tell("at 7 forward");
  EXPECT_EQ(program->ask("fork"), "0");
  program->tell("at 8 forward");
  ASSERT_TRUE(until([this] { return agent->progress.step == 8; }));
  EXPECT_TRUE(all<RankVote>().empty() && all<RankFailed>().empty());
  loop.call([this] {
    EXPECT_EQ(agent->hellos.size(), 1u);
    EXPECT_EQ(agent->gone, 0) << "the connection is the same";
  });
}

TEST_P(ClientTest, WithoutAnAgentNothingHappens) {
  start(false);
  EXPECT_EQ(program->ask("open"), "0");
  for (const char* line :
       {"at 1 forward", "metrics 1 1 1", "restored 1 fresh", "vote 1 1 1 a", "vote_file 2 a", "vote 2 0 0 /",
        "vote_failed 1 b", "finished 1", "failed 1 c", "close"})
    program->tell(line);
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ");
  EXPECT_EQ(program->ask("outcome 1"), "0");
  EXPECT_EQ(program->ask("newest"), "-1");
  EXPECT_EQ(program->exit_with(3), 3);
  EXPECT_TRUE(loop.call([this] { return agent->hellos.empty(); }));
}

TEST_P(ClientTest, AnotherRanksKeyIsNotTaken) {
  start();
  files::replace_atomically(place.key_file, to_hex(rank_key(secret, {2, 5})) + "\n", files::for_owner);
  EXPECT_EQ(program->ask("open"), "1") << "it goes on without the agent";
  program->tell("at 1 forward");
  EXPECT_EQ(program->exit_with(0), 0);
  EXPECT_TRUE(loop.call([this] { return agent->hellos.empty(); }));
}

TEST_P(ClientTest, NonsenseFromTheAgentIsPassedOver) {
  connect();
  loop.call([this] {
    for (const char* text : {"nonsense", "[1]", "{", R"({"m":7})", R"({"m":"commit_outcome","step":20})",
                             R"({"m":"a message of a later version","x":{"y":[1,{"z":"\u0041"}]}})",
                             R"({"m":"drain","stop":"yes"})"})
      agent->channel->send(text);
    agent->channel->send(encode(Finish{0}));
    // A field of a later version, before those that are known.
    agent->channel->send(
        R"({"a":[{"m":"x"},"]"],"attempt":5,"durable":true,"m":"commit_outcome","step":20,"why":""})");
  });
  EXPECT_TRUE(answers("outcome 20", "1"));
  EXPECT_TRUE(asked_outside("orders").starts_with("0"));
}

INSTANTIATE_TEST_SUITE_P(InBothLanguages, ClientTest, testing::Values("C", "Python"),
                         [](const auto& at) { return at.param; });

}  // namespace
}  // namespace holdfast::control
