// `holdfast doctor` and `holdfast init` as users and SLURM's prologs call them: exit codes, JSON, files.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "src/base/subprocess.hpp"
#include "src/config/load.hpp"
#include "tests/launcher/health/fake_node.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

Finished holdfast(std::vector<std::string> arguments, const std::filesystem::path& folder = {}) {
  Command command;
  command.argv = std::move(arguments);
  command.argv.insert(command.argv.begin(), HOLDFAST_PROGRAM);
  command.environment = env::without({"HOLDFAST_", "SLURM_", "SLURMD_"});
  command.folder = folder;
  return run(command, 60s);
}

int plugin_code(const std::string& fitness) {
  return fitness == "ok" ? 0 : fitness == "warning" ? 1 : fitness == "critical" ? 2 : 3;
}

TEST(DoctorCommand, ends_with_the_code_of_a_monitoring_plugin) {
  const auto done = holdfast({"doctor", "--fast", "--json"});
  const auto report = nlohmann::json::parse(done.out);
  EXPECT_EQ(done.status, plugin_code(report.at("fitness")));
  EXPECT_EQ(report.at("schema_version"), 1);
  EXPECT_TRUE(report.at("why").is_string());
  EXPECT_GE(report.at("findings").size(), 10u);
  EXPECT_THAT(holdfast({"doctor", "--fast"}).out, HasSubstr("\nnode: "));
}

TEST(DoctorCommand, is_critical_about_what_the_cluster_file_names_and_the_gate_says_4) {
  const std::string cluster = "--cluster=" HOLDFAST_SOURCE_DIR "/configs/clusters/nabuchodonosor.toml";
  const auto done = holdfast({"doctor", "--fast", cluster});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.out, HasSubstr("net.control       critical  there is no interface called bond0"));
  EXPECT_EQ(holdfast({"doctor", "--fast", "--gate", cluster}).status, 4);
  EXPECT_EQ(holdfast({"doctor", "--fast", "--path", "/nonexistent"}).status, 2);
}

TEST(DoctorCommand, that_cannot_look_is_unknown) {
  const auto done = holdfast({"doctor", "--cluster", "/no/such.toml"});
  EXPECT_EQ(done.status, 3);
  EXPECT_THAT(done.err, HasSubstr("/no/such.toml"));
  EXPECT_EQ(holdfast({"doctor", "--gate", "--cluster", "/no/such.toml"}).status, 2);
  EXPECT_EQ(holdfast({"doctor", "--nodes"}).status, 3) << "outside of a job";
  EXPECT_THAT(holdfast({"doctor", "--network"}).err, HasSubstr("this is no SLURM job"));
  EXPECT_EQ(holdfast({"doctor", "--fast", "--full"}).status, 2) << "a wrong command line";
}

TEST(InitCommand, writes_a_file_once_that_config_reads) {
  holdfast::test::FakeTools tools;
  test::FakeNode here;
  const auto file = here.folder() / "site.toml";
  // The fake tool gives one answer to every call: lines that do not fit the call are ignored.
  tools.answer("sinfo",
               "batch*|up|infinite|2|n[1-2]\nn1|batch*|2|8|1|65536|gpu:h100:8|idle\nn2|batch*|2|8|1|65536|"
               "gpu:h100:8|idle\nslurm 24.05.1\n");
  tools.answer("scontrol", "ClusterName = test\nSwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n");
  tools.answer("srun", "pmix\n");
  const auto done = holdfast({"init", "-o", file.string()});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, file.string() + "\n");
  EXPECT_THAT(done.err, HasSubstr("check this"));
  const auto facts = config::load_cluster(file.string());
  EXPECT_EQ(facts.name, "test");
  EXPECT_EQ(facts.scalable_units, (std::vector<config::ScalableUnit>{{"leaf1", "n[1-2]"}}));
  EXPECT_EQ(holdfast({"init", "-o", file.string()}).status, 2) << "it is there";
  EXPECT_EQ(holdfast({"init", "-o", file.string(), "--force"}).status, 0);
  EXPECT_EQ(holdfast({"init"}, here.folder()).out, "test.toml\n");
  EXPECT_THAT(holdfast({"init", "-o", "-"}).out, StartsWith("# test: 2 nodes of the partition batch"));
  EXPECT_EQ(holdfast({"init", "--partition", "nowhere", "--force"}).status, 2);
}

}  // namespace
}  // namespace holdfast::launcher
