#include "launcher/job/job_script.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/config/scratch.hpp"
#include "tests/launcher/golden.hpp"

namespace holdfast::launcher {
namespace {

using ::testing::Contains;

config::RunConfig settings() {
  config::RunConfig config;
  config.run.name = "70b";
  config.cluster.nodes = 124;
  config.cluster.spares = 3;
  config.slurm.partition = "defq";
  config.slurm.time = "2-00:00:00";
  config.slurm.extra = {"--comment=x y"};
  return config;
}

config::ClusterFacts facts(const std::string& gpu) {
  config::ClusterFacts out;
  out.gpu = gpu;
  out.gpus_per_node = 8;
  return out;
}

TEST(JobScript, GoldenScriptOfALargeJob) {
  const auto job =
      batch_job(settings(), facts("h100"), {"/lustre/runs/it's 70b"}, "/opt/holdfast/bin/holdfast");
  test::expect_golden(slurm::script_text(job) + "\n" + slurm::shown(slurm::submit_arguments(job)) + "\n",
                      "job.sbatch");
}

TEST(JobScript, GoldenScriptThatBringsABundle) {
  auto config = settings();
  config.slurm.bundle = "/home/me/it's.tar.gz";
  const auto job = batch_job(config, facts("none"), {"/lustre/runs/70b"}, "not used");
  test::expect_golden(slurm::script_text(job), "job_with_bundle.sbatch");
  config.slurm.bundle = "relative";
  EXPECT_EQ(test::refusal_of([&] { batch_job(config, facts("none"), {"/r"}, "/h"); }).exit, Exit::usage);
}

TEST(JobScript, AsksForGpusWhereThereAreSome) {
  EXPECT_EQ(batch_job(settings(), facts("h100"), {"/r"}, "/h").gpus_per_node, 8);
  EXPECT_EQ(batch_job(settings(), facts("none"), {"/r"}, "/h").gpus_per_node, 0);
}

TEST(JobScript, PassesEverySlurmSettingOn) {
  auto config = settings();
  config.slurm = {"p", "a", "q", "r", "1:00", "c", {"--hold"}, ""};
  const auto arguments = slurm::submit_arguments(batch_job(config, facts("none"), {"/r"}, "/h"));
  for (const char* wanted : {"--job-name=70b", "--partition=p", "--account=a", "--qos=q", "--reservation=r",
                             "--time=1:00", "--constraint=c", "--hold"})
    EXPECT_THAT(arguments, Contains(wanted));
  EXPECT_EQ(batch_job(config, facts("none"), {"/r"}, "/h").nodes, 127);
}

TEST(JobScript, RefusesPathsThatSlurmCannotCarry) {
  for (const char* path : {"/a\nb", "/a\\b", "relative"}) {
    EXPECT_EQ(test::refusal_of([&] { batch_job(settings(), facts("none"), {path}, "/h"); }).exit,
              Exit::usage);
    EXPECT_EQ(test::refusal_of([&] { batch_job(settings(), facts("none"), {"/r"}, path); }).exit,
              Exit::usage);
  }
}

}  // namespace
}  // namespace holdfast::launcher
