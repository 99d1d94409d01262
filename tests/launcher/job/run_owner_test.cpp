#include "launcher/job/run_owner.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "launcher/supervise/journal.hpp"
#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/base/run_lock.hpp"
#include "tests/config/scratch.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using test::refusal_of;
using ::testing::HasSubstr;

class RunOwner : public ::testing::Test {
 protected:
  void write(const nlohmann::json& owner) { files::replace_atomically(run.owner(), owner.dump()); }
  void own(std::int64_t job) {
    write({{"schema_version", 1}, {"job_id", job}, {"host", "h"}, {"pid", 1}, {"since", 1.5}});
  }
  void claim_of(const std::string& host, int pid, double since) {
    write({{"schema_version", 1}, {"job_id", nullptr}, {"host", host}, {"pid", pid}, {"since", since}});
  }
  static std::string this_host() {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    return host;
  }

  test::Scratch scratch;
  RunDir run{scratch.path()};
  slurm::FakeCluster fake{"dgx[001-004]"};
  slurm::Cluster& cluster = fake;
};

TEST_F(RunOwner, a_claim_ends_in_a_job) {
  EXPECT_FALSE(read_owner(run));
  {
    RunDirClaim claim(run, cluster);
    claim.check();
    EXPECT_FALSE(read_owner(run)->job);
    claim.give_to(17);
  }
  EXPECT_EQ(read_owner(run)->job, 17);
  EXPECT_EQ(files::list(run.path), std::vector<std::string>{"owner.json"}) << "nothing else is left";
}

TEST_F(RunOwner, a_claim_that_came_to_nothing_is_given_back) {
  { RunDirClaim claim(run, cluster); }
  EXPECT_TRUE(files::list(run.path).empty());
}

TEST_F(RunOwner, a_live_job_keeps_its_directory) {
  own(5);
  for (const char* nodes : {"dgx[001-002]", ""}) {
    fake.add_job(5, "j", nodes);
    const auto refusal = refusal_of([&] { RunDirClaim claim(run, cluster); });
    EXPECT_EQ(refusal.exit, Exit::usage);
    EXPECT_THAT(refusal.text, HasSubstr("belongs to job 5"));
  }
  EXPECT_EQ(read_owner(run)->job, 5);
  fake.add_job(5, "j", "dgx001").state = slurm::JobState::completing;
  EXPECT_EQ(refusal_of([&] { RunDirClaim claim(run, cluster); }).exit, Exit::transient)
      << "it will be free in a moment";
}

TEST_F(RunOwner, what_is_ending_is_waited_for) {
  own(5);
  fake.add_job(5, "j", "dgx001");
  const auto submit = [&] { return refusal_of([&] { RunDirClaim claim(run, cluster); }); };
  files::fs::create_directories(run.events());
  Journal journal(run, 1);
  journal.write(events::LeaderElected{"dgx001", "5.0", 1, {}});
  journal.write(events::Drain{1, 12, true, false, "SIGTERM"});
  EXPECT_THAT(submit().text, HasSubstr("end it with")) << "its next job goes on";
  journal.write(events::Drain{1, 12, true, true, "an order"});
  for (const bool over : {false, true}) {
    if (over) journal.write(events::RunFinished{93, "stopped", "", {}});
    const auto refusal = submit();
    EXPECT_EQ(refusal.exit, Exit::transient);
    EXPECT_THAT(refusal.text, HasSubstr("the job is RUNNING, and the run is ending"));
    EXPECT_THAT(refusal.text, testing::Not(HasSubstr("scancel")));
  }
  own(6);
  fake.add_job(6, "j", "dgx001");
  EXPECT_EQ(submit().exit, Exit::usage) << "the record is of the job before";
  fake.add_job(6, "j", "dgx001").state = slurm::JobState::completing;
  EXPECT_THAT(submit().text, HasSubstr("until it gives the node up"));
}

TEST_F(RunOwner, an_ended_or_forgotten_job_does_not) {
  own(5);
  fake.add_job(5, "j", "dgx001");
  fake.end_job(5, "CANCELLED");
  { RunDirClaim(run, cluster).give_to(6); }
  EXPECT_EQ(read_owner(run)->job, 6);
  { RunDirClaim(run, cluster).give_to(7); }
  EXPECT_EQ(read_owner(run)->job, 7);
  EXPECT_EQ(files::list(run.path).size(), 1u);
}

TEST_F(RunOwner, nobody_is_declared_dead_without_slurm) {
  own(5);
  fake.controller(false);
  const auto refusal = refusal_of([&] { RunDirClaim claim(run, cluster); });
  EXPECT_EQ(refusal.exit, Exit::transient);
  EXPECT_THAT(refusal.text, HasSubstr("cannot tell"));
  EXPECT_EQ(read_owner(run)->job, 5);
}

TEST_F(RunOwner, another_submit_at_work_is_respected_until_it_is_dead_or_old) {
  struct Row {
    std::string host;
    int pid;
    double age;
    bool free;
  };
  const int alive = static_cast<int>(::getppid()), dead = 0x3fffffff;
  for (const Row& row :
       {Row{this_host(), alive, 1, false}, Row{this_host(), dead, 1, true}, Row{"elsewhere", dead, 1, false},
        Row{"elsewhere", dead, 5000, true}, Row{this_host(), alive, 5000, true}}) {
    claim_of(row.host, row.pid, unix_seconds() - row.age);
    if (row.free) {
      RunDirClaim claim(run, cluster);
    } else {
      EXPECT_EQ(refusal_of([&] { RunDirClaim claim(run, cluster); }).exit, Exit::usage)
          << row.host << row.pid;
    }
  }
}

TEST_F(RunOwner, a_job_that_submit_never_heard_of_is_found) {
  {
    RunDirClaim claim(run, cluster);
    fake.lose_next_submit_reply();
    EXPECT_THROW(cluster.submit({run.script(), {}}), slurm::OutcomeUnknown);
    claim.keep();
  }
  claim_of("elsewhere", 1, 0);
  const auto refusal = refusal_of([&] { RunDirClaim claim(run, cluster); });
  EXPECT_EQ(refusal.exit, Exit::usage);
  EXPECT_THAT(refusal.text, HasSubstr("belongs to job 1"));
  confirm_owner(run, 1, cluster);
  EXPECT_EQ(read_owner(run)->job, 1) << "the job settles it";
}

TEST_F(RunOwner, the_job_confirms) {
  confirm_owner(run, 9, cluster);
  EXPECT_EQ(read_owner(run)->job, 9) << "submitted by hand";
  fake.controller(false);
  confirm_owner(run, 9, cluster);  // after a requeue, or restarted: SLURM is not needed
  EXPECT_EQ(refusal_of([&] { confirm_owner(run, 10, cluster); }).exit, Exit::transient);
  fake.controller(true);
  fake.add_job(9, "j", "dgx001");
  EXPECT_EQ(refusal_of([&] { confirm_owner(run, 10, cluster); }).exit, Exit::no_requeue);
  fake.end_job(9, "FAILED");
  confirm_owner(run, 10, cluster);
  EXPECT_EQ(read_owner(run)->job, 10);
}

TEST_F(RunOwner, tells_the_jobs_of_a_run_that_live) {
  EXPECT_TRUE(live_jobs(run, cluster).empty());
  own(5);
  fake.add_job(5, "j", "dgx001", "/of/ones/own.sh");
  fake.add_job(6, "j", "", run.script());
  EXPECT_THAT(live_jobs(run, cluster), testing::UnorderedElementsAre(5, 6));
  EXPECT_EQ(live_owner(run, 6, cluster), 5);
  EXPECT_FALSE(live_owner(run, 5, cluster)) << "itself";
  fake.end_job(5, "COMPLETED");
  EXPECT_THAT(live_jobs(run, cluster), testing::ElementsAre(6));
  EXPECT_FALSE(live_owner(run, 6, cluster));
}

TEST_F(RunOwner, a_run_without_a_job_keeps_its_directory) {
  {
    const files::Fd lock = files::open(run.bare_lock(), O_RDWR | O_CREAT);
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    const auto submit = refusal_of([&] { RunDirClaim claim(run, cluster); });
    EXPECT_EQ(submit.exit, Exit::usage);
    EXPECT_THAT(submit.text, HasSubstr("still going on"));
    EXPECT_EQ(refusal_of([&] { confirm_owner(run, 9, cluster); }).exit, Exit::no_requeue);
    EXPECT_FALSE(read_owner(run)) << "the claim was given back";
  }
  RunDirClaim claim(run, cluster);  // the lock of a run that has ended says nothing
  claim.check();
}

TEST_F(RunOwner, a_local_run_keeps_its_directory_while_it_lives) {
  const auto job = take_for_local_run(run, cluster);
  EXPECT_GT(job, 1'000'000'000) << "no job id of SLURM's";
  EXPECT_TRUE(read_owner(run)->local);
  EXPECT_EQ(read_owner(run)->job, job);
  EXPECT_TRUE(is_locked(run));
  const auto submit = refusal_of([&] { RunDirClaim claim(run, cluster); });
  EXPECT_EQ(submit.exit, Exit::usage);
  EXPECT_THAT(submit.text, HasSubstr("runs it without SLURM"));
  EXPECT_TRUE(read_owner(run)->local) << "it is still the owner";
  fake.add_job(job, "j", "dgx001");  // whatever SLURM knows under this number is not this run
  EXPECT_TRUE(live_jobs(run, cluster).empty());
  EXPECT_FALSE(live_owner(run, 6, cluster));

  test::Scratch elsewhere;
  const RunDir other{elsewhere.path()};
  (void)take_for_local_run(other, cluster);  // this process lets the first lock go
  EXPECT_FALSE(is_locked(run));
  EXPECT_EQ(take_for_local_run(run, cluster), job) << "the run has no outcome: the same job goes on";
  (void)take_for_local_run(other, cluster);
  RunDirClaim claim(run, cluster);
  claim.give_to(7);
  EXPECT_FALSE(read_owner(run)->local);
}

TEST_F(RunOwner, a_local_run_does_not_take_the_directory_of_a_live_job) {
  own(5);
  fake.add_job(5, "j", "dgx001");
  EXPECT_THAT(refusal_of([&] { (void)take_for_local_run(run, cluster); }).text,
              HasSubstr("belongs to job 5"));
  EXPECT_EQ(read_owner(run)->job, 5);
  fake.end_job(5, "COMPLETED");
  EXPECT_NE(take_for_local_run(run, cluster), 5);
  EXPECT_TRUE(read_owner(run)->local);
}

TEST_F(RunOwner, a_damaged_file_is_not_guessed_at) {
  for (const char* text :
       {"", "{", "[]", "{\"job_id\":\"x\",\"host\":\"h\",\"pid\":1,\"since\":1}", "{\"job_id\":1}"}) {
    files::replace_atomically(run.owner(), text);
    EXPECT_EQ(refusal_of([&] { RunDirClaim claim(run, cluster); }).exit, Exit::runtime) << text;
    EXPECT_EQ(files::read_text(run.owner()), text);
  }
}

TEST_F(RunOwner, a_stolen_claim_is_noticed) {
  RunDirClaim claim(run, cluster);
  own(5);
  EXPECT_EQ(refusal_of([&] { claim.check(); }).exit, Exit::usage);
}

TEST_F(RunOwner, of_many_racing_submits_one_goes_on) {
  for (int round = 0; round < 10; ++round) {
    own(5);  // long forgotten: everybody wants to clear it away
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        try {
          RunDirClaim claim(run, cluster);
          ::usleep(300'000);  // the others have tried by then
          claim.check();
          ::_exit(0);  // as a submit that goes on to hand its job in
        } catch (const std::exception&) {
          ::_exit(1);
        }
      }
      children.push_back(pid);
    }
    int won = 0;
    for (const pid_t pid : children) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      won += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    EXPECT_EQ(won, 1);
    EXPECT_EQ(files::list(run.path), std::vector<std::string>{"owner.json"});
  }
}

}  // namespace
}  // namespace holdfast::launcher
