#include "slurm/cluster_cli.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "slurm/tools.hpp"
#include "src/base/error.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using test::FakeTools;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class ClusterCliTest : public ::testing::Test {
 protected:
  template <class Call>
  Error error_of(Call call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {Exit::done, ""};
  }
  FakeTools tools;
  ClusterCli cli;
  Cluster& cluster = cli;
};

TEST_F(ClusterCliTest, submits_without_a_shell) {
  tools.answer("sbatch", FakeTools::captured("sbatch_parsable.txt"));
  EXPECT_EQ(cluster.submit({"/run dir/job.sbatch", {"--job-name=a \"b\" $(touch x)\nc"}}), 1);
  EXPECT_EQ(tools.calls(),
            "[ sbatch\n--parsable\n--job-name=a \"b\" $(touch x)\nc\n/run dir/job.sbatch\n]\n");
}

TEST_F(ClusterCliTest, asks_about_jobs) {
  tools.answer("squeue", FakeTools::captured("job_running.txt"));
  env::set("SQUEUE_FORMAT", "%A");
  EXPECT_THAT(cluster.job(1)->nodes, ElementsAre("dgx001", "dgx002", "dgx003"));
  EXPECT_THAT(tools.environment("squeue"), HasSubstr("\nSLURM_TIME_FORMAT=%s\n"));
  EXPECT_THAT(tools.environment("squeue"), Not(HasSubstr("SQUEUE_FORMAT")));
  ::unsetenv("SQUEUE_FORMAT");
  tools.answer("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", 1);
  EXPECT_FALSE(cluster.job(99));
  tools.answer("squeue", FakeTools::captured("jobs_by_script.txt"));
  EXPECT_THAT(cluster.jobs_of_script("/shared/home/sl.sh"), ElementsAre(2, 5, 1));
  EXPECT_TRUE(cluster.jobs_of_script("/shared/home/other.sh").empty());
  EXPECT_EQ(cluster.script_of_job(1), "/shared/home/sl.sh");
  EXPECT_FALSE(cluster.script_of_job(4711));
}

TEST_F(ClusterCliTest, asks_about_nodes_in_the_order_asked) {
  tools.answer("sinfo", FakeTools::captured("nodes_down.txt"));
  const auto nodes = cluster.nodes({"dgx003", "dgx001"});
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].name, "dgx003");
  EXPECT_EQ(nodes[1].name, "dgx001");
  EXPECT_EQ(error_of([&] { cluster.nodes({"dgx009"}); }).exit(), Exit::usage);
  EXPECT_TRUE(cluster.nodes({}).empty());
}

TEST_F(ClusterCliTest, says_that_the_controller_is_down) {
  tools.answer(
      "sbatch", "",
      "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
      1);
  const Error submit = error_of([&] { cluster.submit({"/j", {}}); });
  EXPECT_EQ(submit.exit(), Exit::transient);
  EXPECT_THAT(submit.what(), Not(HasSubstr("unknown")));
  tools.answer("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
               1);
  EXPECT_EQ(error_of([&] { cluster.job(1); }).exit(), Exit::transient);
  const Error ping = error_of([&] { cluster.ping(); });
  EXPECT_EQ(ping.exit(), Exit::transient);
  EXPECT_THAT(ping.what(), HasSubstr("connect failure"));
  EXPECT_EQ(error_of([&] { cluster.jobs_of_script("/j"); }).exit(), Exit::transient);
}

TEST_F(ClusterCliTest, any_word_about_a_job_is_an_answer_of_the_controller) {
  tools.answer("scontrol", "Slurmctld(primary) at login is DOWN\n", "", 1);  // at the limit of the rate
  tools.answer("squeue", "1|RUNNING|None|dgx001|dgx001|N/A|a\n");
  EXPECT_NO_THROW(cluster.ping());
  tools.answer("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", 1);
  EXPECT_NO_THROW(cluster.ping());
}

TEST_F(ClusterCliTest, admits_that_a_submission_may_have_worked) {
  tools.answer("sbatch", "",
               "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", 1);
  const Error timed_out = error_of([&] { cluster.submit({"/j", {}}); });
  EXPECT_EQ(timed_out.exit(), Exit::transient);
  EXPECT_THAT(timed_out.what(), HasSubstr("unknown"));
  tools.hang("sbatch");
  EXPECT_THAT(error_of([&] {
                cluster.submit({"/j", {}}, std::chrono::milliseconds(200));
              }).what(),
              HasSubstr("unknown"));
}

TEST_F(ClusterCliTest, passes_slurms_own_words_on) {
  tools.answer("sbatch", "", "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
               1);
  const Error error = error_of([&] { cluster.submit({"/j", {}}); });
  EXPECT_EQ(error.exit(), Exit::usage);
  EXPECT_THAT(error.what(), HasSubstr("Invalid partition name specified"));
}

TEST_F(ClusterCliTest, never_waits_longer_than_it_was_told) {
  tools.hang("squeue");
  const auto begin = Clock::now();
  const Error error = error_of([&] { cluster.job(1, std::chrono::milliseconds(200)); });
  EXPECT_EQ(error.exit(), Exit::transient);
  EXPECT_THAT(error.what(), HasSubstr("longer than 0.2 s"));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(ClusterCliTest, names_a_missing_tool) {
  const std::string path = env::get_or("PATH", "");
  env::set("PATH", "/nonexistent");
  const Error error = error_of([&] { cluster.ping(); });
  env::set("PATH", path);
  EXPECT_EQ(error.exit(), Exit::runtime);
  EXPECT_THAT(error.what(), HasSubstr("'squeue'"));
}

TEST_F(ClusterCliTest, needs_path_no_more_once_the_tools_are_found) {
  const std::string path = env::get_or("PATH", "");
  env::set("PATH", "/nonexistent:relative:" + path);
  find_tools();
  EXPECT_EQ(tool_path("squeue"), HOLDFAST_SOURCE_DIR "/tests/slurm/fake_bin/squeue");
  // PATH then begins with a folder in which there is another one.
  const auto other = std::filesystem::temp_directory_path() / ("other-tools-" + std::to_string(::getpid()));
  std::filesystem::create_directories(other);
  std::filesystem::create_symlink("/bin/false", other / "scontrol");
  env::set("PATH", other.string() + ":" + path);
  cluster.requeue(7);
  EXPECT_THAT(tools.calls(), HasSubstr("[ scontrol\nrequeue\n7\n]\n"));
  StepRequest step;
  step.job = 7;
  step.nodes = {"dgx001"};
  step.command = {"agent"};
  EXPECT_EQ(cli.step_command(step).argv.front(), tool_path("srun"));
  env::set("PATH", other.string());
  find_tools();
  EXPECT_EQ(tool_path("squeue"), "squeue") << "what was found before holds no more";
  env::set("PATH", path);
  std::filesystem::remove_all(other);
}

TEST_F(ClusterCliTest, requeues_and_cancels) {
  cluster.requeue(7);
  cluster.cancel(7);
  EXPECT_THAT(tools.calls(), AllOf(HasSubstr("[ scontrol\nrequeue\n7\n]\n"), HasSubstr("[ scancel\n7\n]\n")));
  tools.answer("scontrol", "", "Job is pending execution for job 7\n", 1);
  cluster.requeue(7);
  tools.answer("scontrol", "", "Invalid job id specified for job 7\n", 1);
  EXPECT_EQ(error_of([&] { cluster.requeue(7); }).exit(), Exit::usage);
  tools.answer("scontrol", "", "Unexpected message received for job 7\n", 1);
  tools.answer("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
               1);
  EXPECT_EQ(error_of([&] { cluster.requeue(7); }).exit(), Exit::transient)
      << "it is how 22.05 says that slurmctld is down";
}

TEST_F(ClusterCliTest, requeues_its_own_job) {
  // SLURM ends the processes of a job that it requeues. It sends SIGTERM while scontrol waits for the reply.
  tools.end_job("scontrol");
  cluster.requeue(7);
  cluster.exclude(7, {"dgx001"});
  EXPECT_THAT(tools.calls(),
              AllOf(HasSubstr("[ scontrol\nrequeue\n7\n]\n"), HasSubstr("ExcNodeList=dgx001")));
}

TEST_F(ClusterCliTest, acts_on_one_task_of_an_array) {
  // The number of the task that was started last is the array's, too.
  tools.answer("squeue", "15|15|2\n17|15|1\n");
  EXPECT_EQ(cluster.called(15).text(), "15_2");
  EXPECT_EQ(cluster.called(17).text(), "15_1");
  EXPECT_EQ(cluster.number_of("15_1"), 17);
  tools.answer("squeue", "");
  cluster.requeue(15);
  cluster.exclude(15, {"dgx001"});
  cluster.set_comment(15, "x");
  cluster.comment(15);
  cluster.wait_for(15, 17);
  cluster.signal_steps(15, agent_step, SIGTERM);
  cluster.cancel(15);
  const std::string calls = tools.calls();
  for (const char* call :
       {"[ scontrol\nrequeue\n15_2\n]", "[ scontrol\nupdate\nJobId=15_2\nExcNodeList=dgx001\n]",
        "[ scontrol\nupdate\nJobId=15_2\nComment=x\n]", "\n--jobs=15_2\n--format=%k\n",
        "[ scontrol\nupdate\nJobId=15_2\nDependency=afterany:15_1\n]", "--steps\n--jobs=15_2\n",
        "[ scancel\n15_2\n]"})
    EXPECT_THAT(calls, HasSubstr(call));
}

TEST_F(ClusterCliTest, knows_the_task_that_it_runs_in) {
  for (const auto& [name, value] :
       {std::pair{"SLURM_JOB_ID", "15"}, {"SLURM_ARRAY_JOB_ID", "15"}, {"SLURM_ARRAY_TASK_ID", "2"}})
    env::set(name, value);
  cluster.requeue(15);
  for (const char* name : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"}) ::unsetenv(name);
  EXPECT_EQ(tools.calls(), "[ scontrol\nrequeue\n15_2\n]\n") << "without a question";
}

TEST_F(ClusterCliTest, cancels_all_that_it_has_submitted) {
  tools.answer("sbatch", "15\n");
  tools.answer("squeue", "15|15|2\n17|15|1\n");
  cluster.cancel(cluster.submit({"/a.sbatch", {"--array=1-2"}}));
  EXPECT_THAT(tools.calls(), HasSubstr("[ scancel\n15\n]"));
}

TEST_F(ClusterCliTest, signals_the_steps_of_a_name) {
  tools.answer("squeue", "7.batch|batch\n7.0|agent\n7.3|agent\n");
  cluster.signal_steps(7, agent_step, SIGTERM);
  EXPECT_THAT(tools.calls(), HasSubstr("[ scancel\n--signal=15\n7.0\n7.3\n]\n"));
}

TEST_F(ClusterCliTest, tells_the_version) {
  tools.answer("sinfo", FakeTools::captured("version.txt"));
  EXPECT_EQ(cluster.version(), "22.05.8");
  tools.answer("sinfo", "", "sinfo: fatal: Could not establish a configuration source\n", 1);
  EXPECT_EQ(error_of([&] { cluster.version(); }).exit(), Exit::transient);
}

TEST_F(ClusterCliTest, asks_for_the_gpus_that_a_job_has) {
  tools.answer("scontrol", FakeTools::captured("job_details.txt"));
  EXPECT_THAT(cluster.gpus(3), ElementsAre(Pair("dgx003", 3), Pair("dgx004", 1)));
  tools.answer("scontrol", "", "slurm_load_jobs error: Invalid job id specified\n", 1);
  EXPECT_THAT(error_of([&] { cluster.gpus(3); }).what(), HasSubstr("Invalid job id specified"));
}

TEST_F(ClusterCliTest, asks_for_the_nodes_of_each_partition_of_a_job) {
  tools.answer("squeue", "a,b|dgx009\n");
  tools.answer("sinfo", FakeTools::captured("nodes_idle.txt"));
  const auto around = cluster.other_nodes(3);
  EXPECT_THAT(around.excluded, ElementsAre("dgx009"));
  ASSERT_EQ(around.partitions.size(), 2u);
  EXPECT_EQ(around.partitions[1].size(), 4u);
  EXPECT_THAT(tools.calls(), AllOf(HasSubstr("--partition=a\n"), HasSubstr("--partition=b\n")));
}

TEST_F(ClusterCliTest, reads_and_sets_the_comment_of_a_job) {
  tools.answer("squeue", "(null)\n");
  EXPECT_EQ(cluster.comment(3), "");
  tools.answer("squeue", "{\"holdfast\":1,\"run\":\"a b\"}\n");
  EXPECT_EQ(cluster.comment(3), "{\"holdfast\":1,\"run\":\"a b\"}");
  EXPECT_THAT(tools.calls(), HasSubstr("--jobs=3\n--format=%k\n"));
  tools.answer("scontrol", "");
  cluster.set_comment(3, "{\"holdfast\":1}");
  EXPECT_THAT(tools.calls(), HasSubstr("[ scontrol\nupdate\nJobId=3\nComment={\"holdfast\":1}\n]\n"));
  tools.answer("scontrol", "", "slurm_update error: Access/permission denied", 1);
  EXPECT_THROW(cluster.set_comment(3, "x"), Error);
}

TEST_F(ClusterCliTest, starts_steps_free_of_the_callers_place) {
  env::set("SLURM_JOB_ID", "4");
  env::set("SLURM_CPUS_PER_TASK", "1");
  env::set("SRUN_CPUS_PER_TASK", "1");
  StepRequest request;
  request.job = 4;
  request.nodes = {"dgx001"};
  request.command = {"true"};
  const Command command = cluster.step_command(request);
  ::unsetenv("SLURM_JOB_ID"), ::unsetenv("SLURM_CPUS_PER_TASK"), ::unsetenv("SRUN_CPUS_PER_TASK");
  EXPECT_EQ(command.argv.front(), "srun");
  EXPECT_TRUE(command.new_session);
  ASSERT_TRUE(command.environment);
  for (const auto& entry : *command.environment)
    for (const char* gone : {"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_JOB_ID"})
      EXPECT_FALSE(entry.starts_with(gone));
}

}  // namespace
}  // namespace holdfast::slurm
