#include "slurm/replies.hpp"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

/// The job of a reply that has one.
std::optional<Job> read_job_in(const std::string& reply) { return read_job(reply, std::stoll(reply)); }

TEST(Replies, tell_a_running_job) {
  const auto job = read_job_in(test::FakeTools::captured("job_running.txt"));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->id, 1);
  EXPECT_EQ(job->state, JobState::running);
  EXPECT_EQ(job->state_text, "RUNNING");
  EXPECT_EQ(job->reason, "");
  EXPECT_THAT(job->nodes, ElementsAre("dgx001", "dgx002", "dgx003"));
  EXPECT_EQ(job->batch_host, "dgx001");
  EXPECT_EQ(job->end_time, 1795229373.0);
  EXPECT_EQ(job->name, "a b \"q\" 's' $(touch /tmp/x) |x\nnewline|9|RUNNING")
      << "bars and newlines are the name's own";
  EXPECT_FALSE(read_job_in(test::FakeTools::captured("job_running_no_limit.txt"))->end_time);
}

TEST(Replies, tell_a_job_that_lost_nodes) {
  EXPECT_THAT(read_job_in(test::FakeTools::captured("job_shrunk.txt"))->nodes,
              ElementsAre("dgx001", "dgx002"));
  const auto headless = read_job_in(test::FakeTools::captured("job_batch_host_lost.txt"));
  EXPECT_EQ(headless->state, JobState::running);
  EXPECT_THAT(headless->nodes, ElementsAre("dgx002"));
  EXPECT_EQ(headless->batch_host, "dgx001") << "where the script was, though the node is gone";
}

TEST(Replies, tell_every_stage_of_life) {
  struct Row {
    const char* file;
    JobState state;
    const char* word;
    const char* reason;
    bool alive;
  };
  for (const Row& row : {Row{"job_pending.txt", JobState::pending, "PENDING", "Resources", true},
                         Row{"job_too_big.txt", JobState::pending, "PENDING", "PartitionNodeLimit", true},
                         Row{"job_requeued.txt", JobState::pending, "PENDING", "", true},
                         Row{"job_completing.txt", JobState::completing, "COMPLETING", "", true},
                         Row{"job_completed.txt", JobState::finished, "COMPLETED", "", false},
                         Row{"job_failed.txt", JobState::finished, "FAILED", "NonZeroExitCode", false},
                         Row{"job_cancelled.txt", JobState::finished, "CANCELLED", "Priority", false}}) {
    const auto job = read_job_in(test::FakeTools::captured(row.file));
    ASSERT_TRUE(job) << row.file;
    EXPECT_EQ(job->state, row.state) << row.file;
    EXPECT_EQ(job->state_text, row.word) << row.file;
    EXPECT_EQ(job->reason, row.reason) << row.file;
    EXPECT_EQ(job->alive(), row.alive) << row.file;
    if (job->state == JobState::pending) {
      EXPECT_THAT(job->nodes, IsEmpty()) << row.file;
      EXPECT_EQ(job->batch_host, "") << row.file;
      EXPECT_FALSE(job->end_time) << row.file;
    }
  }
  EXPECT_EQ(job_state("SOME_STATE_OF_THE_FUTURE"), JobState::running);
  EXPECT_EQ(job_state("NODE_FAIL"), JobState::finished);
  EXPECT_EQ(job_state("REQUEUE_HOLD"), JobState::pending);
}

TEST(Replies, tell_reasons_with_spaces_and_lists) {
  const auto job =
      read_job("20|PENDING|ReqNodeNotAvail, UnavailableNodes:dgx[002-004]||n/a|N/A|waiting\n", 20);
  EXPECT_EQ(job->reason, "ReqNodeNotAvail, UnavailableNodes:dgx[002-004]");
  EXPECT_EQ(job->name, "waiting");
}

/// squeue --jobs=15 says this of an array of four tasks, of which one waits: 15 is the number of the array,
/// and of the task that was started last.
const char* const tasks_of_15 =
    "15|RUNNING|None|dgx003|dgx003|1795229373|a\nb|c\n"
    "17|RUNNING|None|dgx002|dgx002|1795229400|a\nb|c\n"
    "16|COMPLETING|None|dgx001|dgx001|1795229500|a\nb|c\n";

TEST(Replies, tell_the_tasks_of_an_array_apart) {
  EXPECT_THAT(read_job(tasks_of_15, 15)->nodes, ElementsAre("dgx003"));
  const auto other = read_job(tasks_of_15, 16);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->id, 16);
  EXPECT_EQ(other->state, JobState::completing);
  EXPECT_THAT(other->nodes, ElementsAre("dgx001"));
  EXPECT_EQ(other->name, "a\nb|c");
  EXPECT_EQ(read_job(tasks_of_15, 17)->end_time, 1795229400.0);
  EXPECT_FALSE(read_job(tasks_of_15, 18)) << "a task that has ended, of an array that has not";
  const std::string queue = "17|RUNNING|None|1795624186|/a\n15|PENDING|BeginTime|1795624999|/a\n";
  EXPECT_EQ(read_queued_job(queue, 15)->reason, "BeginTime");
  EXPECT_FALSE(read_queued_job(queue, 16));
}

TEST(Replies, name_the_tasks_of_an_array) {
  const char* tasks = "15|15|4\n17|15|3\n16|15|2\n";
  EXPECT_EQ(read_task(tasks, 15).text(), "15_4");
  EXPECT_EQ(read_task(tasks, 16).text(), "15_2");
  EXPECT_EQ(read_task("15|15|3-8\n16|15|2\n", 15).text(), "15") << "several tasks wait";
  EXPECT_EQ(read_task("7|7|N/A\n", 7).text(), "7") << "no array";
  EXPECT_EQ(read_task("", 7).text(), "7");
  EXPECT_EQ(read_number(tasks, "15_4"), 15);
  EXPECT_EQ(read_number(tasks, "15_2"), 16);
  EXPECT_FALSE(read_number(tasks, "15_9"));
}

TEST(Replies, refuse_what_they_cannot_read) {
  EXPECT_FALSE(read_job("", 1));
  EXPECT_FALSE(read_job("\n", 1));
  for (const char* text :
       {"x", "1|RUNNING", "a|RUNNING|None|dgx001|dgx001|1|n", "1|RUNNING|None|dgx[|dgx001|1|n"})
    EXPECT_THROW(read_job(text, 1), Error) << text;
  for (const char* text : {"", "Submitted batch job 3", "-1", "0", "1x", ";", "99999999999999999999"})
    EXPECT_THROW(read_submitted(text), Error) << text;
  EXPECT_THROW(read_nodes("dgx001 idle"), Error);
}

TEST(Replies, survive_random_text) {
  std::mt19937 random(3);
  const std::string alphabet = "1|a[]\n-,RUNNING9 ";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned i = 0, n = random() % 40; i < n; ++i) text += alphabet[random() % alphabet.size()];
    try {
      read_job(text, 1), read_nodes(text), read_submitted(text);
    } catch (const Error&) {
    }
    try {
      read_job_constraints(text + "|" + text);
    } catch (const Error&) {
    }
    try {
      read_gpus("JobId=1 \n     Nodes=" + text + " CPU_IDs=0 GRES=gpu:" + text, 1);
    } catch (const Error&) {
    }
    read_jobs_of_script(text, "a"), read_version(text), complaint(text), gpus_in(text);
  }
}

TEST(Replies, tell_the_job_id) {
  EXPECT_EQ(read_submitted(test::FakeTools::captured("sbatch_parsable.txt")), 1);
  EXPECT_EQ(read_submitted("17;nabuchodonosor\n"), 17);
  EXPECT_EQ(read_submitted("welcome to the site's submit filter\n 17 \n\n"), 17);
}

TEST(Replies, find_the_live_jobs_of_a_script) {
  const std::string out = test::FakeTools::captured("jobs_by_script.txt");
  EXPECT_THAT(read_jobs_of_script(out, "/shared/home/sl.sh"), ElementsAre(2, 5, 1))
      << "3 was cancelled, 4 has no script";
  EXPECT_THAT(read_jobs_of_script(out, "/shared/home/sl"), IsEmpty());
  EXPECT_THAT(read_jobs_of_script("7|RUNNING|/a|b\n", "/a|b"), ElementsAre(7));
}

TEST(Replies, tell_own_jobs) {
  const auto jobs = read_own_jobs(
      "7|PENDING|Priority|1795624186|/runs/a|b/"
      "job.sbatch\n8|RUNNING|None|1795620000|(null)\n"
      "9|PENDING|Dependency|N/A|/x\n10|CANCELLED|None|N/A|/x\nslurm is busy\n");
  EXPECT_THAT(jobs, ElementsAre(OwnJob{7, JobState::pending, "PENDING", "Priority", 1795624186.,
                                       "/runs/a|b/job.sbatch"},
                                OwnJob{8, JobState::running, "RUNNING", "", 1795620000., "(null)"},
                                OwnJob{9, JobState::pending, "PENDING", "Dependency", std::nullopt, "/x"}));
}

TEST(Replies, tell_one_job_of_the_queue) {
  EXPECT_EQ(*read_queued_job("7|CANCELLED|None|1795624186|/x\n", 7),
            (OwnJob{7, JobState::finished, "CANCELLED", "", 1795624186., "/x"}));
  EXPECT_FALSE(read_queued_job("\n", 7));
  EXPECT_THROW(read_queued_job("slurm is busy", 7), Error);
}

TEST(Replies, tell_processes_of_a_job_on_this_node) {
  // Of SLURM 22.05; '-' is no task of the step.
  EXPECT_THAT(
      read_processes(
          "PID      JOBID    STEPID   LOCALID GLOBALID\n54       1        0        0       0       \n"
          "55       1        0        -       -       \n28       1        batch    0       0       \n"),
      testing::UnorderedElementsAre(28, 54, 55));
  EXPECT_TRUE(read_processes("").empty());
}

TEST(Replies, tell_steps_of_a_name) {
  EXPECT_THAT(read_steps_named("17.batch|batch\n17.0|agent\n17.1|train|agent\n17.12|agent\nbusy\n", "agent"),
              ElementsAre("17.0", "17.12"));
}

TEST(Replies, tell_nodes) {
  const auto idle = read_nodes(test::FakeTools::captured("nodes_idle.txt"));
  ASSERT_EQ(idle.size(), 4u);
  EXPECT_EQ(idle[3].name, "dgx004");
  EXPECT_EQ(idle[3].address, "dgx004");
  EXPECT_EQ(idle[3].reason, "");
  for (const auto& node : idle) EXPECT_TRUE(node.usable);

  const auto down = read_nodes(test::FakeTools::captured("nodes_down.txt"));
  ASSERT_EQ(down.size(), 4u);
  EXPECT_FALSE(down[0].usable);
  EXPECT_EQ(down[0].reason, "gone too");
  EXPECT_FALSE(down[1].usable) << "draining: it works on until its job is done, and gets no other";
  EXPECT_EQ(down[1].state_text, "draining");
  EXPECT_EQ(down[1].reason, "so | said it");
}

TEST(Replies, judge_node_states) {
  for (const auto& [state, usable] : std::map<std::string, bool>{{"idle", true},
                                                                 {"idle*", false},
                                                                 {"allocated", true},
                                                                 {"mixed-", true},
                                                                 {"idle~", false},
                                                                 {"reserved", true},
                                                                 {"down", false},
                                                                 {"down*", false},
                                                                 {"unknown", false},
                                                                 {"idle#", false},
                                                                 {"draining@", false},
                                                                 {"drained", false},
                                                                 {"reserved$", true},
                                                                 {"planned", true},
                                                                 {"fail", false},
                                                                 {"*", false},
                                                                 {"", false}})
    EXPECT_EQ(read_nodes("n1|" + state + "|10.0.0.1|none\n").front().usable, usable) << state;
  EXPECT_EQ(read_nodes("n1|idle|a|none\nn1|idle|a|none\n").size(), 1u) << "one line for each partition";
}

TEST(Replies, tell_the_gpus_of_a_job) {
  const std::string out = test::FakeTools::captured("job_details.txt");
  EXPECT_THAT(read_gpus(out, 1), IsEmpty()) << "pending";
  EXPECT_THAT(read_gpus(out, 2), ElementsAre(Pair("dgx001", 8), Pair("dgx002", 8)))
      << "exclusive: all of its nodes, asked for or not";
  EXPECT_THAT(read_gpus(out, 3), ElementsAre(Pair("dgx003", 3), Pair("dgx004", 1)))
      << "its own, though 4 is of the same array";
  EXPECT_THAT(read_gpus(out, 5), IsEmpty()) << "none";
  EXPECT_THAT(read_gpus(out, 6), IsEmpty()) << "no such job";
}

TEST(Replies, count_gpus) {
  for (const auto& [text, count] : std::map<std::string, int>{{"gpu:h100:8", 8},
                                                              {"gpu:8", 8},
                                                              {"(null)", 0},
                                                              {"", 0},
                                                              {"gpu:h100:8(S:0-1)", 8},
                                                              {"gpu:a100:4(S:0,2),gpu:h100:2(S:1),nic:9", 6},
                                                              {"nic:mlx5:8", 0},
                                                              {"gpu:x", 0}})
    EXPECT_EQ(gpus_in(text), count) << text;
}

TEST(Replies, sort_error_texts) {
  const std::map<std::string, Exit> kinds = {{"transient", Exit::transient},
                                             {"usage", Exit::usage},
                                             {"impossible", Exit::impossible},
                                             {"runtime", Exit::runtime}};
  std::string all =
      test::FakeTools::captured("errors.txt") + test::FakeTools::captured("errors_of_accounts.txt");
  int cases = 0;
  while (all.starts_with("## ")) {
    const auto end_of_title = all.find('\n'), end = std::min(all.find("\n## ", end_of_title), all.size() - 1);
    const std::string title = all.substr(3, end_of_title - 3),
                      text = all.substr(end_of_title + 1, end - end_of_title);
    EXPECT_EQ(kind_of_failure(text), kinds.at(title.substr(0, title.find(' ')))) << title;
    EXPECT_EQ(complaint(text).find("error:"), std::string::npos) << complaint(text);
    all.erase(0, end + 1);
    ++cases;
  }
  EXPECT_GE(cases, 25);
  EXPECT_EQ(complaint("sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission "
                      "failed: Invalid partition name specified\n"),
            "Batch job submission failed: Invalid partition name specified");
  EXPECT_EQ(complaint("sbatch: unrecognized option '--nosuch'\nTry \"sbatch --help\" for more information\n"),
            "unrecognized option '--nosuch'");
  EXPECT_EQ(
      complaint(
          "sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job "
          "violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"),
      "QOSMaxWallDurationPerJobLimit: more time than a job of the QOS may have");
  EXPECT_EQ(complaint(""), "it said nothing");
}

TEST(Replies, tell_a_preempted_job) {
  EXPECT_TRUE(read_preempted("1795530012\n"));
  for (const char* none : {"", "\n", "N/A                 \n", "None", "0"})
    EXPECT_FALSE(read_preempted(none)) << none;
  EXPECT_FALSE(requeues_preempted_jobs("22.05.8"));
  EXPECT_FALSE(requeues_preempted_jobs(""));
  EXPECT_TRUE(requeues_preempted_jobs("24.05.0-rc1"));
  EXPECT_TRUE(requeues_preempted_jobs("26.05.5"));
}

TEST(Replies, tell_version_and_ping) {
  EXPECT_EQ(read_version(test::FakeTools::captured("version.txt")), "22.05.8");
  EXPECT_EQ(read_version("slurm 24.11.0-rc1"), "24.11.0-rc1");
  EXPECT_EQ(read_version("what?"), "");
  EXPECT_EQ(version_warning("22.05.8"), "");
  EXPECT_EQ(version_warning("25.11.1"), "");
  EXPECT_NE(version_warning("19.05.5"), "");
  EXPECT_NE(version_warning("21.08.8"), "");
  EXPECT_EQ(version_warning("26.05.5"), "");
  EXPECT_NE(version_warning("26.11.0"), "") << "nobody has tried it";
  EXPECT_NE(version_warning(""), "");
}

}  // namespace
}  // namespace holdfast::slurm
