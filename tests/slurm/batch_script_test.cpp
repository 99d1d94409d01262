#include "slurm/batch_script.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <map>
#include <thread>

#include "slurm/commands.hpp"
#include "src/base/clock.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "tests/slurm/fake_tools.hpp"

namespace holdfast::slurm {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<std::string> nasty = {"a b",
                                        "it's",
                                        "\"q\"",
                                        "$(touch evaluated)",
                                        "`touch evaluated`",
                                        "$HOME",
                                        "a;b",
                                        "a&b|c>d",
                                        "*",
                                        "~",
                                        "-x",
                                        "!x",
                                        "#SBATCH -p",
                                        "'; touch evaluated; '",
                                        "100%j",
                                        "{run_dir}",
                                        "ümlaut",
                                        "a'b\"c$d`e"};

Command command(std::vector<std::string> arguments, const fs::path& folder) {
  Command out;
  out.argv = std::move(arguments);
  out.argv.insert(out.argv.begin(), "bash");
  out.folder = folder;
  return out;
}
Finished bash(std::vector<std::string> arguments, const fs::path& folder = {}) {
  return run(command(std::move(arguments), folder), std::chrono::seconds(100));
}

BatchJob simple() {
  BatchJob job;
  job.nodes = 4;
  job.run_dir = "/run/a";
  job.logs = "/run/a/logs";
  job.holdfast = "/opt/holdfast";
  job.name = "a";
  return job;
}

TEST(BatchScript, fits_a_page) {
  BatchJob job = simple();
  job.gpus_per_node = 8;
  const std::string text = script_text(job);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 41) << "short enough to read";
  EXPECT_THAT(text, HasSubstr("#SBATCH --gres=gpu:8\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=4\n"));
  EXPECT_THAT(script_text(simple()), Not(HasSubstr("gres")));
}

TEST(BatchScript, passes_the_users_words_as_arguments) {
  BatchJob job = simple();
  job.name = "a \"b\" $(c)\nd";
  job.logs = "/run/100%/logs";
  job.partition = "pod";
  job.time = "1-0";
  job.extra = {"--exclude", "dgx003", "-x", "dgx004", "--hold"};
  EXPECT_THAT(submit_arguments(job), ElementsAre("--job-name=a \"b\" $(c)\nd", "--chdir=/run/a",
                                                 "--output=/run/100%%/logs/job-%j.log", "--partition=pod",
                                                 "--time=1-0", "--exclude=dgx003", "-xdgx004", "--hold"));
  EXPECT_THAT(script_text(job), Not(HasSubstr("$(c)")));
}

TEST(BatchScript, refuses_paths_that_slurm_cannot_carry) {
  for (const char* path : {"relative", "", "/a\nb", "/a\tb", "/a\\b", "/a\x7f"}) {
    BatchJob job = simple();
    job.run_dir = path;
    EXPECT_THROW(script_text(job), Error) << path;
  }
}

TEST(BatchScript, joins_options_with_their_values) {
  EXPECT_THAT(joined({"--a=b", "-c4", "--d", "e f", "-g", "h"}),
              ElementsAre("--a=b", "-c4", "--d=e f", "-gh"));
  EXPECT_THAT(joined({}), IsEmpty());
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"x"}, {"--a=b", "x"}, {"--a", "b", "x"}, {"-c4", "x"}, {""}, {"-"}, {"--"}, {"--", "x"}})
    EXPECT_THROW(joined(words), Error) << words.front();
}

TEST(BatchScript, refuses_options_that_are_its_own) {
  for (const char* word : {"--nodes=3", "-N3", "-N", "--output=x", "-ox", "--out=x", "--array=1-3", "-a1",
                           "--wrap=x", "--wait", "-W", "--chdir=/", "--job-name=x", "--test-only",
                           "--no-requeue", "--requeue=expedite", "--clusters=x", "--container=x"})
    EXPECT_THROW(joined({word}), Error) << word;
  for (const char* word : {"--nodelist=a", "--exclude=a", "--wait-all-nodes=1", "--error-free", "--comment=x",
                           "-xdgx1", "--exclusive=user", "--container-image=a"})
    EXPECT_EQ(joined({word}).front(), word);
}

TEST(BatchScript, shows_commands_that_can_be_pasted) {
  EXPECT_EQ(shown({"sbatch", "--job-name=a b", "x"}), "sbatch '--job-name=a b' x");
  EXPECT_EQ(shown({"a\nb", ""}), "$'a\\x0ab' ''");
  for (const auto& word : nasty) {
    const auto echoed = bash({"-c", "printf %s " + shown({word + "\nnext"})});
    EXPECT_EQ(echoed.out, word + "\nnext") << shown({word + "\nnext"});
    EXPECT_EQ(bash({"-c", "printf %s " + shown({word})}).out, word);
  }
}

TEST(BatchScript, RunsNothingInAPlaceThatSomebodyElseMayHaveMade) {
  const std::vector<std::string> installed = {"/opt/holdfast/bin/holdfast", "agent", "/runs/a"};
  EXPECT_EQ(step_from_place(installed), installed);
  std::string place = "/tmp/holdfast-17-XXXXXX";
  ASSERT_NE(::mkdtemp(place.data()), nullptr);
  const fs::path program = fs::path(place) / "holdfast/bin/holdfast";
  fs::create_directories(program.parent_path());
  files::replace_atomically(program, "#!/bin/sh\necho \"runs with $*\"\n", 0700);
  const auto step = [](const std::string& of) {
    Command command;
    command.argv = step_from_place({of, "agent", "/runs/a b"});
    return run(command, std::chrono::seconds(20));
  };
  EXPECT_EQ(step(program).out, "runs with agent /runs/a b\n");
  const std::string link = place + "-link";
  fs::create_directory_symlink(place, link);
  std::vector<std::string> planted = {link + "/holdfast/bin/holdfast",
                                      place + "-absent/holdfast/bin/holdfast"};
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((fs::path(place) / "holdfast").c_str(), 65534, 65534), 0);
    planted.push_back(program);
  }
  for (const auto& of : planted) {
    const Finished refused = step(of);
    EXPECT_EQ(refused.status, static_cast<int>(Exit::unhealthy)) << of;
    EXPECT_EQ(refused.out, "") << of;
    EXPECT_NE(refused.err.find("the bundle cannot be run on"), std::string::npos) << refused.err;
  }
  fs::remove(link), fs::remove_all(place);
}

/// The script, run by bash, with a fake holdfast program from the test.
class BatchScriptRun : public ::testing::Test {
 protected:
  BatchScriptRun() {
    std::string name = (fs::temp_directory_path() / "batch-script-XXXXXX").string();
    folder = ::mkdtemp(name.data());
    env::set("SLURM_JOB_ID", "17");
  }
  ~BatchScriptRun() override {
    ::unsetenv("SLURM_JOB_ID");
    fs::remove_all(folder);
  }
  /// `body`: bash; $1 $2 are "run" and the run directory. It finds its number of start in $n.
  void holdfast(const std::string& body, const fs::path& at = "holdfast") {
    fs::create_directories((folder / at).parent_path());
    files::replace_atomically(
        folder / at,
        "#!/bin/bash\ncd '" + folder.string() + "'\necho >>starts\nn=$(wc -l <starts)\n" + body + "\n", 0700);
    program = folder / at;
  }
  fs::path script(const fs::path& run_dir) {
    BatchJob job = simple();
    job.run_dir = run_dir;
    job.holdfast = program;
    files::replace_atomically(folder / "job.sbatch", script_text(job), 0700);
    return folder / "job.sbatch";
  }
  Finished run_script() { return bash({script("/run dir").string()}, folder); }
  int starts() const {
    const std::string text = fs::exists(folder / "starts") ? files::read_text(folder / "starts") : "";
    return static_cast<int>(text.size());
  }
  void wait_for(const fs::path& file) const {
    for (int i = 0; i < 2000 && !fs::exists(folder / file); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(fs::exists(folder / file));
  }

  fs::path folder, program;
  test::FakeTools tools;
};

TEST_F(BatchScriptRun, evaluates_nothing_of_a_path) {
  for (const auto& name : nasty) {
    fs::remove(folder / "starts");
    holdfast("printf '%s|' \"$#\" \"$@\" >said; exit 3", fs::path(name) / "holdfast");
    const fs::path run_dir = folder / "runs" / name;
    const fs::path file = script(run_dir);
    ASSERT_EQ(bash({"-n", file.string()}).status, 0) << name;
    const Finished done = bash({file.string()}, folder);
    EXPECT_EQ(done.status, 3) << name << done.err;
    EXPECT_EQ(files::read_text(folder / "said"), "2|run|" + run_dir.string() + "|") << name;
    EXPECT_FALSE(fs::exists(folder / "evaluated")) << name;
    EXPECT_EQ(done.err, "") << name;
  }
}

TEST_F(BatchScriptRun, ends_with_every_exit_code_of_a_run) {
  for (const int code : {0, 1, 2, 3, 4, 5, 93}) {
    fs::remove(folder / "starts");
    holdfast("exit " + std::to_string(code));
    EXPECT_EQ(run_script().status, code);
    EXPECT_EQ(starts(), 1) << code;
  }
  EXPECT_EQ(tools.calls(), "");
}

TEST_F(BatchScriptRun, starts_again_after_a_signal) {
  holdfast("[ $n -ge 3 ] && exit 5; kill -KILL $$");
  EXPECT_EQ(run_script().status, 5);
  EXPECT_EQ(starts(), 3);
}

TEST_F(BatchScriptRun, gives_up_on_the_sixth_crash_in_a_row) {
  holdfast("kill -SEGV $$");
  EXPECT_EQ(run_script().status, 128 + SIGSEGV);
  EXPECT_EQ(starts(), 6);
}

TEST_F(BatchScriptRun, requeues_on_a_transient_failure) {
  holdfast("exit 75");
  // After a requeue the script becomes a sleep, which SLURM ends.
  const pid_t pid = spawn(command({script("/run dir").string()}, folder));
  for (int i = 0; i < 2000 && tools.calls().find("17\n]\n") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(tools.calls(), "[ squeue\n-h\n-j\n17\n-O\nPreemptTime\n]\n[ scontrol\nrequeue\n17\n]\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(pid, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(starts(), 1);
}

TEST_F(BatchScriptRun, leaves_a_preempted_job_to_slurm) {
  holdfast("exit 75");
  tools.answer("squeue", "2026-11-24T14:19:17\n");
  EXPECT_EQ(run_script().status, 75);
  EXPECT_EQ(tools.calls().find("scontrol"), std::string::npos);
}

TEST_F(BatchScriptRun, ends_at_once_when_the_job_is_requeued_already) {
  // SLURM's order to end comes while the script asks for what its run has asked for: no node must be held.
  holdfast("exit 75");
  files::replace_atomically(folder / "scontrol", "#!/bin/bash\nkill -TERM $PPID\nexit 1\n", 0700);
  const std::string path = *env::get("PATH");
  env::set("PATH", folder.string() + ":" + path);
  const auto begin = Clock::now();
  EXPECT_EQ(run_script().status, 75);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(25));
  env::set("PATH", path);
}

TEST_F(BatchScriptRun, passes_signals_on_and_returns_the_exit_code) {
  holdfast(
      "trap 'echo usr1 >>got' USR1; trap 'echo term >>got; exit 75' TERM; touch ready; for i in {1..600}; do "
      "sleep 0.05; done");
  const pid_t pid = spawn(command({script("/run dir").string()}, folder));
  wait_for("ready");
  ::kill(pid, SIGUSR1);
  wait_for("got");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(pid, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(exit_status(status), 75) << "and no requeue: SLURM is ending the job";
  EXPECT_EQ(files::read_text(folder / "got"), "usr1\nterm\n");
  EXPECT_EQ(starts(), 1);
  EXPECT_EQ(tools.calls(), "");
}

TEST_F(BatchScriptRun, does_not_start_again_when_it_is_being_ended) {
  holdfast("trap 'kill -KILL $$' TERM; touch ready; for i in {1..600}; do sleep 0.05; done");
  const pid_t pid = spawn(command({script("/run dir").string()}, folder));
  wait_for("ready");
  ::kill(pid, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(exit_status(status), 128 + SIGKILL);
  EXPECT_EQ(starts(), 1);
}

TEST(BatchScript, reads_time_limits_as_sbatch_does) {
  for (const auto& [text, seconds] : std::map<std::string, int>{{"2", 120},
                                                                {"1:30", 120},
                                                                {"1:00:00", 3600},
                                                                {"1-0", 86400},
                                                                {"1-2:3", 86400 + 7380},
                                                                {"0-0:2:1", 180},
                                                                {"30:00", 1800}})
    EXPECT_EQ(limit_in(text), seconds) << text;
  for (const char* text :
       {"", "0", "UNLIMITED", "infinite", "-1", "1:2:3:4", "1-2:3:4:5", "a", "1-", "99999999"})
    EXPECT_FALSE(limit_in(text)) << text;
}

TEST(BatchScript, shortens_the_notice_of_a_short_limit) {
  EXPECT_EQ(notice_for(25, std::nullopt), 120);
  EXPECT_EQ(notice_for(25, 3600), 120);
  EXPECT_EQ(notice_for(25, 180), 60);
  EXPECT_EQ(notice_for(25, 120), 40) << "the checkpoint needs 25 s";
  EXPECT_EQ(notice_for(600, std::nullopt), 630);
  EXPECT_EQ(notice_for(600, 1200), 615);
  EXPECT_EQ(shortest_limit(25), 120);
  EXPECT_EQ(shortest_limit(0), 120);
  EXPECT_EQ(shortest_limit(90), 185);
  for (const int drain_s : {0, 25, 90, 600})
    for (int limit = shortest_limit(drain_s); limit < 3 * 3600; limit += 60) {
      const int notice = notice_for(drain_s, limit);
      EXPECT_GT(notice, drain_s);
      EXPECT_GE(limit - notice - early_s, 20) << "the job is told to end as soon as it begins";
    }
}

TEST(BatchScript, takes_the_last_time_limit) {
  std::vector<std::string> arguments = {"--comment=x", "--time=5", "-t7", "--time-min=2"};
  EXPECT_EQ(take_time(arguments), "7");
  EXPECT_THAT(arguments, ElementsAre("--comment=x", "--time-min=2"));
  EXPECT_FALSE(take_time(arguments));
}

TEST(BatchScript, knows_a_job_that_waits_for_its_turn) {
  const std::vector<JobId> live = {6, 7};
  for (const char* list : {"afterany:6", "afterok:5:7", "singleton", "after:9,afterany:6",
                           "afterany:6?singleton", "afternotok:7"})
    EXPECT_TRUE(waits_for_one_of({"--comment=x", std::string("--dependency=") + list}, live)) << list;
  for (const char* list : {"after:6", "afterany:9", "afterany:6?afterany:9", "afterany:6?after:7", "afterany",
                           "", "aftercorr:6", "afterany:66"})
    EXPECT_FALSE(waits_for_one_of({std::string("--dependency=") + list}, live)) << list;
  EXPECT_TRUE(waits_for_one_of({"-dafterany:6"}, live));
  EXPECT_FALSE(waits_for_one_of({"--dependency=afterany:6", "--dependency=afterany:9"}, live))
      << "the last one counts";
  EXPECT_FALSE(waits_for_one_of({"--comment=x"}, live));
}

}  // namespace
}  // namespace holdfast::slurm
