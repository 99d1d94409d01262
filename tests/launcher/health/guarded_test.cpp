#include "launcher/health/guarded.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "launcher/health/doctor.hpp"
#include "launcher/health/nodes.hpp"
#include "tests/launcher/health/fake_node.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Finding> said(Fitness fitness, const std::string& says = "x") {
  return {{"a", fitness, says, ""}};
}

TEST(Worst, is_unknown_only_when_nothing_else_was_found) {
  const auto of = [](std::vector<Fitness> all) {
    std::vector<Finding> findings;
    for (const auto fitness : all) findings.push_back({"a", fitness, "", ""});
    return worst(findings);
  };
  EXPECT_EQ(of({}), Fitness::unknown);
  EXPECT_EQ(of({Fitness::unknown, Fitness::unknown}), Fitness::unknown);
  EXPECT_EQ(of({Fitness::unknown, Fitness::ok}), Fitness::ok);
  EXPECT_EQ(of({Fitness::ok, Fitness::warning, Fitness::unknown}), Fitness::warning);
  EXPECT_EQ(of({Fitness::warning, Fitness::critical, Fitness::ok}), Fitness::critical);
}

TEST(Health, names_the_worst_findings_alone) {
  const std::vector<Finding> findings = {{"a", Fitness::critical, "one", ""},
                                         {"b", Fitness::warning, "two", ""},
                                         {"c", Fitness::critical, "three", ""}};
  const auto health = health_of(findings, "abc");
  EXPECT_EQ(health.fitness, Fitness::critical);
  EXPECT_EQ(health.why, "a: one; c: three");
  EXPECT_EQ(health.numerics, "abc");
  EXPECT_EQ(health_of({{"a", Fitness::ok, "good", ""}}, "").why, "");
  const auto long_one =
      health_of(std::vector<Finding>(100, {"check", Fitness::warning, std::string(50, 'x'), ""}), "");
  EXPECT_LT(long_one.why.size(), 600u);
}

TEST(Guarded, checks_answer_in_their_order) {
  const auto findings = run_guarded({{"slow", [] { return ::usleep(50000), said(Fitness::ok, "first"); }},
                                     {"quick", [] { return said(Fitness::warning, "second"); }},
                                     {"none", [] { return std::vector<Finding>{}; }}},
                                    Millis(20000));
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].says, "first");
  EXPECT_EQ(findings[1].fitness, Fitness::warning);
}

TEST(Guarded, checks_cannot_hang_or_crash_their_caller) {
  const auto findings =
      run_guarded({{"hangs", [] { return ::pause(), said(Fitness::ok); }},
                   {"deaf", [] { return ::signal(SIGTERM, SIG_IGN), ::pause(), said(Fitness::ok); }},
                   {"crashes", [] { return ::raise(SIGKILL), said(Fitness::ok); }},
                   {"throws", []() -> std::vector<Finding> { throw std::runtime_error("no such luck"); }},
                   {"leaves", [] { return ::_exit(0), said(Fitness::ok); }},
                   {"works", [] { return said(Fitness::ok, "well"); }}},
                  Millis(300));
  ASSERT_EQ(findings.size(), 6u);
  EXPECT_EQ(findings[0].fitness, Fitness::critical);
  EXPECT_EQ(findings[0].says, "does not answer within 0.3 s");
  EXPECT_EQ(findings[1].fitness, Fitness::critical);
  EXPECT_EQ(findings[2].says, "the check was ended by signal 9");
  EXPECT_EQ(findings[3].fitness, Fitness::unknown);
  EXPECT_EQ(findings[3].says, "cannot be checked: no such luck");
  EXPECT_EQ(findings[4].says, "the check has written no result");
  EXPECT_EQ(findings[5].says, "well");
}

TEST(Report, is_for_people_and_for_programs) {
  const std::vector<Finding> findings = {{"gpu.count", Fitness::critical, "7 of 8 GPUs", "See the log"},
                                         {"disk.space", Fitness::ok, "plenty", ""}};
  EXPECT_EQ(report_text(findings),
            "gpu.count         critical  7 of 8 GPUs (See the log)\n"
            "disk.space        ok        plenty\n"
            "node: critical\n");
  const auto j = report_json("dgx001", findings);
  EXPECT_EQ(j["schema_version"], 1);
  EXPECT_EQ(j["node"], "dgx001");
  EXPECT_EQ(j["fitness"], "critical");
  EXPECT_EQ(j["why"], "gpu.count: 7 of 8 GPUs");
  EXPECT_EQ(finding_from(j["findings"][0])->advice, "See the log");
  EXPECT_FALSE(finding_from({{"check", "a"}, {"fitness", "excellent"}, {"says", ""}, {"advice", ""}}));
  EXPECT_FALSE(finding_from("text"));
}

TEST(Doctor, looks_at_everything_and_at_less_when_fast) {
  test::FakeNode node;
  Expected expected;
  expected.paths = {node.folder()};
  expected.shared_files = {node.folder() / "x" / "shared-file"};
  const auto names = [&] {
    std::vector<std::string> list;
    for (const auto& check : checks_of(node.roots, expected)) list.push_back(check.name);
    return list;
  };
  const auto all = names();
  EXPECT_THAT(all, ::testing::IsSupersetOf({"gpu", "nic", "time.sync", "disk.seen", "slurm.version",
                                            "mpi.version", "libraries"}));
  expected.depth = Depth::fast;
  EXPECT_EQ(names().size(), all.size() - 3);
  EXPECT_EQ(test::found(examine(node.roots, expected, Millis(20000)), "disk.seen").fitness,
            Fitness::critical);
}

TEST(Nodes, are_examined_by_a_step_each) {
  test::FakeNode here;
  slurm::FakeCluster cluster("dgx[001-003]");
  const std::string report = report_json("x", {{"gpu.count", Fitness::ok, "8 of 8 GPUs", ""}}).dump();
  {
    Steps steps(cluster, 1, {"dgx001"}, {},
                {"/bin/sh", "-c", "echo a site greets you; echo '" + report + "'"}, here.folder());
    steps.wait(Millis(20000));
  }
  {
    Steps steps(cluster, 1, {"dgx002"}, {}, {"/bin/sh", "-c", "echo no such luck; exit 3"}, here.folder());
    steps.wait(Millis(20000));
  }
  Steps(cluster, 1, {"dgx003"}, {}, {"/bin/sleep", "1000"}, here.folder()).wait(Millis(50));  // and is ended
  std::vector<NodeReport> reports;
  for (const char* name : {"dgx001", "dgx002", "dgx003"})
    reports.push_back(read_report(name, here.folder() / (std::string(name) + ".out")));
  EXPECT_EQ(worst(reports[0].findings), Fitness::ok);
  EXPECT_EQ(reports[1].findings.front().says, "its output is: no such luck");
  EXPECT_EQ(reports[2].findings.front().says, "no report in time");
  EXPECT_THAT(nodes_text(reports), StartsWith("dgx002            critical\n"));
  const auto j = nodes_json(reports);
  EXPECT_EQ(j["fitness"], "critical");
  EXPECT_EQ(j["nodes"].size(), 3u);
  EXPECT_THAT(j["why"].get<std::string>(), HasSubstr("dgx003: no report in time"));
}

}  // namespace
}  // namespace holdfast::launcher
