// What the tools of each release say of the same jobs and nodes (captured by capture.sh on a minipod).
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "slurm/replies.hpp"
#include "slurm/site.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::SizeIs;

/// The job of a reply that has one.
std::optional<Job> read_captured_job(const std::string& reply) { return read_job(reply, std::stoll(reply)); }

class Releases : public testing::TestWithParam<std::string> {
 protected:
  static std::string reply(const std::string& name) { return test::FakeTools::captured(name, GetParam()); }
};

TEST_P(Releases, tell_their_version) {
  const std::string version = read_version(reply("version.txt"));
  EXPECT_TRUE(version.starts_with(GetParam() + ".")) << version;
  EXPECT_EQ(version_warning(version), "");
}

TEST_P(Releases, tell_jobs) {
  EXPECT_EQ(read_submitted(reply("sbatch_parsable.txt")), 1);
  const auto running = read_captured_job(reply("job_running.txt"));
  ASSERT_TRUE(running);
  EXPECT_EQ(running->state, JobState::running);
  EXPECT_THAT(running->nodes, ElementsAre("dgx001", "dgx002"));
  EXPECT_EQ(running->batch_host, "dgx001");
  EXPECT_TRUE(running->end_time);
  EXPECT_EQ(running->name, "a b \"q\" $(x) |y");
  const auto waiting = read_captured_job(reply("job_pending.txt"));
  EXPECT_EQ(waiting->state, JobState::pending);
  EXPECT_EQ(waiting->reason, "Resources");
  EXPECT_THAT(waiting->nodes, IsEmpty());
  const auto requeued = read_captured_job(reply("job_requeued.txt"));
  EXPECT_EQ(requeued->state, JobState::pending);
  EXPECT_EQ(requeued->batch_host, "");
  EXPECT_FALSE(requeued->end_time);
  for (const auto& [file, word] : std::map<std::string, std::string>{{"job_cancelled.txt", "CANCELLED"},
                                                                     {"job_failed.txt", "FAILED"},
                                                                     {"job_completed.txt", "COMPLETED"}}) {
    const auto job = read_captured_job(reply(file));
    EXPECT_EQ(job->state, JobState::finished) << file;
    EXPECT_EQ(job->state_text, word);
  }
  const std::string jobs = reply("jobs_by_script.txt");
  EXPECT_THAT(read_jobs_of_script(jobs, "/shared/home/job.sh"), ElementsAre(2, 1));
  EXPECT_EQ(read_script_of_job(jobs, 2), "/shared/home/job.sh");
  EXPECT_THAT(read_job_constraints(reply("job_constraints.txt")),
              Optional(AllOf(Field(&JobConstraints::partitions, ElementsAre("pod")),
                             Field(&JobConstraints::excluded, IsEmpty()))));
  EXPECT_THAT(read_gpus(reply("job_details.txt"), 1), ElementsAre(Pair("dgx001", 8), Pair("dgx002", 8)));
}

TEST_P(Releases, tell_nodes) {
  for (const auto& node : read_nodes(reply("nodes_idle.txt"))) EXPECT_TRUE(node.usable) << node.name;
  const auto down = read_nodes(reply("nodes_down.txt"));
  ASSERT_THAT(down, SizeIs(4));
  EXPECT_TRUE(down[0].usable);
  EXPECT_FALSE(down[2].usable) << down[2].state_text;
  EXPECT_FALSE(down[3].usable) << down[3].state_text;
  EXPECT_EQ(down[3].reason, "so | said it");
}

TEST_P(Releases, tell_the_site) {
  const auto partitions = read_partitions(reply("site_partitions.txt"));
  ASSERT_THAT(partitions, SizeIs(1));
  EXPECT_TRUE(partitions[0].is_default && partitions[0].up);
  EXPECT_THAT(partitions[0].nodes, SizeIs(4));
  const auto shapes = read_shapes(reply("site_nodes.txt"));
  ASSERT_THAT(shapes, SizeIs(4));
  EXPECT_EQ(shapes[3].cores(), 16);
  EXPECT_EQ(shapes[3].gpus, 8);
  EXPECT_EQ(shapes[3].gpu_model, "h100");
  const auto settings = read_settings(reply("site_config.txt"));
  EXPECT_EQ(settings.at("SlurmdTimeout"), "300 sec");
  for (const auto* name : {"ClusterName", "JobRequeue", "PreemptMode", "TaskPlugin", "TopologyPlugin"})
    EXPECT_TRUE(settings.contains(name)) << name;
  EXPECT_EQ(settings.at("TaskProlog"), "") << "(null)";
  EXPECT_THAT(read_mpi_plugins(reply("site_mpi.txt")), Contains("pmi2"));
  const auto units = read_topology(reply("site_topology.txt"));
  ASSERT_THAT(units, SizeIs(2));
  EXPECT_THAT(units[1].nodes, ElementsAre("dgx003", "dgx004"));
}

TEST_P(Releases, refuse_in_words_that_are_known) {
  const std::map<std::string, Exit> kinds = {
      {"transient", Exit::transient}, {"usage", Exit::usage}, {"impossible", Exit::impossible}};
  std::string all = reply("errors.txt") + reply("errors_of_accounts.txt");
  int cases = 0;
  for (; all.starts_with("## "); ++cases) {
    const auto end_of_title = all.find('\n'), end = std::min(all.find("\n## ", end_of_title), all.size() - 1);
    const std::string title = all.substr(3, end_of_title - 3);
    const std::string text = all.substr(end_of_title + 1, end - end_of_title);
    EXPECT_EQ(kind_of_failure(text), kinds.at(title.substr(0, title.find(' ')))) << title;
    all.erase(0, end + 1);
  }
  EXPECT_EQ(cases, 21);
}

INSTANTIATE_TEST_SUITE_P(Captured, Releases, testing::Values("24.11", "26.05"), [](const auto& with) {
  return "slurm_" + with.param.substr(0, 2) + "_" + with.param.substr(3);
});

TEST(Topologies, of_newer_releases_have_units) {
  const auto units_of = [](const std::string& kind) {
    return read_topology(test::FakeTools::captured("site_topology_" + kind + ".txt", "26.05"));
  };
  const auto several = units_of("several"), blocks = units_of("blocks");
  ASSERT_THAT(several, SizeIs(2)) << "the default one";
  EXPECT_EQ(several[0].name, "su1");
  ASSERT_THAT(blocks, SizeIs(2)) << "an aggregated block is no unit";
  EXPECT_EQ(blocks[1].name, "b2");
  for (const auto& [kind, name] : std::map<std::string, std::string>{{"rings", "r1"}, {"torus", "t1"}}) {
    const auto units = units_of(kind);
    ASSERT_THAT(units, SizeIs(1)) << kind;
    EXPECT_EQ(units[0].name, name);
    EXPECT_THAT(units[0].nodes, SizeIs(4));
  }
}

}  // namespace
}  // namespace holdfast::slurm
