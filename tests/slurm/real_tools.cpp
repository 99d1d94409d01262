// Every command line of Holdfast for SLURM's tools, run with the installed tools on a minipod
// that tools_test.sh has prepared: four nodes on which SLURM reserves two cores, the partition "hidden" of
// all of them and "two" of dgx003 and dgx004. Run on the login host by the owner of the jobs; Administrator.*
// by root.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "slurm/cluster_cli.hpp"
#include "slurm/commands.hpp"
#include "slurm/environment.hpp"
#include "slurm/hostlist.hpp"
#include "slurm/job_commands.hpp"
#include "slurm/requeue.hpp"
#include "slurm/site.hpp"
#include "src/base/env.hpp"
#include "src/base/files.hpp"

namespace holdfast::slurm {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr seconds patience{60};
const std::filesystem::path home = "/shared/home";

Cluster& cluster() {
  static ClusterCli cli;
  return cli;
}

bool soon(const std::function<bool()>& holds) {
  for (const auto deadline = Deadline::in(patience); !deadline.passed(); ::usleep(100000))
    if (holds()) return true;
  return holds();
}

Finished tool(const std::vector<std::string>& argv) {
  Command command;
  command.argv = argv;
  command.environment = tool_environment();
  return run(command, patience);
}

/// A word of `scontrol show job`, such as the value of "ExcNodeList=".
std::string shown_of(JobId id, const std::string& key) {
  const std::string text = tool({"scontrol", "show", "job", std::to_string(id)}).out;
  const auto begin = text.find(" " + key + "=");
  if (begin == std::string::npos) return "no " + key;
  const auto value = begin + key.size() + 2;
  return text.substr(value, text.find_first_of(" \n", value) - value);
}

/// One job on two nodes, which the tests use one after another.
class Owner : public testing::Test {
 protected:
  static std::filesystem::path script() { return home / "real tools.sbatch"; }
  static std::filesystem::path log() { return home / ("tools-" + std::to_string(job) + ".log"); }
  static void SetUpTestSuite() {
    files::replace_atomically(script(),
                              "#!/bin/bash\n"
                              "#SBATCH --nodes=2 --exclusive --mem=0 --no-kill --requeue --time=60\n"
                              "#SBATCH --output=/shared/home/tools-%j.log --open-mode=append\n"
                              "trap 'echo script: USR1' USR1\n"
                              "bash -c 'trap \"echo child: USR2\" USR2; while :; do sleep 0.1; done' &\n"
                              "trap : USR2\n"
                              "echo up\n"
                              "while :; do wait; done\n");
    job = cluster().submit(
        {script(),
         {"--job-name=a | \"job\"", "--partition=hidden", "--exclude=dgx004", "--hint=nomultithread"}});
  }
  static void TearDownTestSuite() {
    if (job > 0) cluster().cancel(job);
  }
  static bool runs() {
    const auto now = cluster().job(job);
    return now && now->state == JobState::running;
  }
  static bool has_logged(const std::string& line) {
    return std::filesystem::exists(log()) && files::read_text(log()).find(line + "\n") != std::string::npos;
  }

  static JobId job;
};
JobId Owner::job = 0;

TEST_F(Owner, asks_for_the_version_and_the_controller) {
  EXPECT_THAT(cluster().version(), testing::MatchesRegex("[0-9]+\\.[0-9]+.*"));
  EXPECT_NO_THROW(cluster().ping());
}

TEST_F(Owner, asks_about_a_job) {
  ASSERT_TRUE(soon(runs));
  const auto now = cluster().job(job);
  ASSERT_TRUE(now);
  EXPECT_THAT(now->nodes, SizeIs(2));
  EXPECT_EQ(now->batch_host, now->nodes.front());
  EXPECT_TRUE(now->end_time);
  EXPECT_EQ(now->name, "a | \"job\"");
  EXPECT_THAT(cluster().jobs_of_script(script()), ElementsAre(job));
  EXPECT_EQ(cluster().script_of_job(job), script());
  EXPECT_FALSE(cluster().job(4711));
  const auto own = ClusterCli().own_jobs();
  ASSERT_THAT(own, Contains(testing::Field(&OwnJob::id, job)));
  const auto mine = *std::find_if(own.begin(), own.end(), [](const OwnJob& one) { return one.id == job; });
  EXPECT_EQ(mine.state_text, "RUNNING");
  EXPECT_EQ(mine.script, script());
  EXPECT_THAT(mine.start, testing::Optional(testing::Gt(1.7e9)));
  EXPECT_EQ(ClusterCli().queued_job(job), mine);
  EXPECT_FALSE(ClusterCli().queued_job(4711));
}

TEST_F(Owner, asks_about_nodes_in_the_order_asked) {
  const auto nodes = cluster().nodes({"dgx003", "dgx001"});
  ASSERT_THAT(nodes, SizeIs(2));
  EXPECT_EQ(nodes[0].name, "dgx003");
  EXPECT_EQ(nodes[0].address, "dgx003");
  EXPECT_EQ(nodes[0].reason, "");
  EXPECT_TRUE(nodes[0].usable) << nodes[0].state_text;
  EXPECT_THROW(cluster().nodes({"dgx009"}), Error);
}

TEST_F(Owner, runs_a_step_with_all_that_the_job_has_on_the_node) {
  ASSERT_TRUE(soon(runs));
  StepRequest request;
  request.job = job;
  const std::string node = cluster().job(job)->nodes.back();
  request.nodes = {node};
  const auto gpus = cluster().gpus(job);
  EXPECT_THAT(gpus, AllOf(SizeIs(2), Contains(Pair(node, 8)))) << "exclusive, though it asked for none";
  request.gpus = gpus.at(node);
  request.output = home / "real tools 100%.step";
  request.command = {"sh", "-c",
                     "echo $SLURM_JOB_ID $SLURMD_NODENAME $SLURM_CPUS_ON_NODE $CUDA_VISIBLE_DEVICES"};
  std::filesystem::remove(request.output);
  env::set("SRUN_CPUS_PER_TASK", "1");
  const Finished step = run(cluster().step_command(request), patience);
  ::unsetenv("SRUN_CPUS_PER_TASK");
  ASSERT_EQ(step.status, 0) << step.err;
  // 16 cores of two threads, less two reserved cores.
  EXPECT_EQ(files::read_text(request.output), std::to_string(job) + " " + node + " 28 0,1,2,3,4,5,6,7\n");
}

TEST_F(Owner, signals_a_step_whose_srun_was_killed) {
  ASSERT_TRUE(soon(runs));
  StepRequest step;
  step.job = job;
  step.nodes = cluster().job(job)->nodes;
  step.command = {"bash", "-c", "trap 'echo ended; exit' TERM; echo begun; while :; do sleep 0.1; done"};
  step.output = home / ("step-" + std::to_string(job) + "-{node}.log");
  const auto all_say = [&](const std::string& word) {
    return std::ranges::all_of(step.nodes, [&](const std::string& node) {
      const auto said = home / ("step-" + std::to_string(job) + "-" + node + ".log");
      return std::filesystem::exists(said) && files::read_text(said).find(word) != std::string::npos;
    });
  };
  const pid_t srun = spawn(cluster().step_command(step));
  EXPECT_TRUE(soon([&] { return all_say("begun"); }));
  ::kill(-srun, SIGKILL);
  ::waitpid(srun, nullptr, 0);
  cluster().signal_steps(job, agent_step, SIGTERM);
  EXPECT_TRUE(soon([&] { return all_say("ended"); }));
}

TEST_F(Owner, signals_the_script_alone_or_every_process) {
  ASSERT_TRUE(soon([] { return has_logged("up"); }));
  EXPECT_EQ(tool(signal_script_argv(job, "USR1")).status, 0);
  EXPECT_TRUE(soon([] { return has_logged("script: USR1"); }));
  EXPECT_EQ(tool(signal_all_argv(job, "USR2")).status, 0);
  EXPECT_TRUE(soon([] { return has_logged("child: USR2"); }));
}

TEST_F(Owner, acts_on_one_task_of_an_array) {
  const JobId array = cluster().submit({script(), {"--array=1-2", "--nodes=1", "--hold"}});
  ClusterCli later;  // as in a later process, which has not submitted it
  Cluster& other = later;
  EXPECT_EQ(tool({"scontrol", "release", std::to_string(array)}).status, 0);
  // The task that is started last has the array's number.
  EXPECT_TRUE(soon([&] { return other.called(array).text().find('_') != std::string::npos; }));
  const std::string name = other.called(array).text(), first = std::to_string(array) + "_1";
  const auto sibling = other.number_of(name == first ? std::to_string(array) + "_2" : first);
  ASSERT_TRUE(sibling);
  EXPECT_NE(*sibling, array);
  EXPECT_EQ(other.number_of(name), array);
  EXPECT_EQ(other.job(array)->id, array);
  other.set_comment(array, "of one");
  EXPECT_EQ(other.comment(array), "of one");
  EXPECT_EQ(other.comment(*sibling), "");
  other.cancel(array);
  EXPECT_TRUE(soon([&] {
    const auto now = other.job(array);
    return !now || !now->alive();
  }));
  EXPECT_TRUE(other.job(*sibling)->alive());
  cluster().cancel(array);  // all that it has submitted
  EXPECT_TRUE(soon([&] {
    const auto now = other.job(*sibling);
    return !now || !now->alive();
  }));
}

TEST_F(Owner, knows_where_a_job_may_run_besides) {
  const auto around = cluster().other_nodes(job);
  EXPECT_THAT(around.excluded, ElementsAre("dgx004"));
  ASSERT_THAT(around.partitions, SizeIs(1));
  EXPECT_THAT(around.partitions.front(), SizeIs(4)) << "a hidden partition";
  const JobId held = cluster().submit({script(), {"--hold", "--partition=two,hidden"}});
  const auto both = cluster().other_nodes(held);
  EXPECT_THAT(both.excluded, IsEmpty());
  ASSERT_THAT(both.partitions, SizeIs(2));
  EXPECT_THAT(both.partitions[0].size() + both.partitions[1].size(), 6);
  cluster().cancel(held);
  EXPECT_TRUE(soon([&] { return !cluster().job(held)->alive(); }));
}

TEST_F(Owner, requeues_a_job_for_other_nodes) {
  ASSERT_TRUE(soon(runs));
  const auto before = cluster().job(job)->nodes;
  requeue_elsewhere(cluster(), job, {2, {before.back()}});
  EXPECT_EQ(expand(shown_of(job, "ExcNodeList")).size(), 2u) << shown_of(job, "ExcNodeList");
  EXPECT_THAT(cluster().other_nodes(job).excluded, testing::UnorderedElementsAre(before.back(), "dgx004"));
  EXPECT_EQ(shown_of(job, "Restarts"), "1");
  EXPECT_NO_THROW(cluster().requeue(job)) << "it is pending already";
  // Without this it would wait for two minutes.
  EXPECT_TRUE(soon([] {
    const auto now = cluster().job(job);
    return now->state == JobState::pending && tool(start_now_argv(job)).status == 0;
  }));
  ASSERT_TRUE(soon(runs));
  EXPECT_THAT(cluster().job(job)->nodes,
              AllOf(SizeIs(2), Not(Contains(before.back())), Not(Contains("dgx004"))));
}

TEST_F(Owner, leaves_a_job_that_could_not_start_elsewhere_as_it_is) {
  ASSERT_TRUE(soon(runs));
  const auto here = cluster().job(job)->nodes;
  const std::string before = shown_of(job, "ExcNodeList");
  requeue_elsewhere(cluster(), job, {2, {here.back()}});
  EXPECT_EQ(shown_of(job, "Restarts"), "2");
  EXPECT_EQ(shown_of(job, "ExcNodeList"), before);
  requeue_elsewhere(cluster(), job, {2, {}, {}, expand(before)});
  EXPECT_EQ(shown_of(job, "ExcNodeList"), "(null)") << "nodes that were excluded long ago";
}

TEST_F(Owner, cancels_a_job) {
  cluster().cancel(job);
  EXPECT_TRUE(soon([] {
    const auto now = cluster().job(job);
    return !now || !now->alive();
  }));
  EXPECT_THROW(cluster().requeue(4711), Error);
  EXPECT_NO_THROW(cluster().cancel(4711));
}

TEST_F(Owner, asks_about_the_site) {
  const auto site = probe_site(patience);
  EXPECT_THAT(site.unknown, IsEmpty());
  EXPECT_THAT(site.partitions, SizeIs(3));
  ASSERT_THAT(site.nodes, SizeIs(4));
  EXPECT_EQ(site.nodes.front().threads_per_core, 2);
  EXPECT_EQ(site.nodes.front().gpus, 8);
  EXPECT_THAT(site.scalable_units, SizeIs(2));
  EXPECT_THAT(site.mpi, Not(IsEmpty()));
  EXPECT_EQ(site.setting("ClusterName"), "minipod");
}

TEST(Administrator, drains_a_node) {
  const Finished done = tool(drain_argv("dgx004", "holdfast: gpu (Xid 79)"));
  EXPECT_EQ(done.status, 0) << done.err;
  const auto node = cluster().nodes({"dgx004"}, patience).front();
  EXPECT_THAT(node.state_text, HasSubstr("drain"));
  EXPECT_EQ(node.reason, "holdfast: gpu (Xid 79)");
  EXPECT_FALSE(node.usable) << "no job gets it";
}

}  // namespace
}  // namespace holdfast::slurm
