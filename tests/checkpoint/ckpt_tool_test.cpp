// `holdfast ckpt`: what the verbs print and refuse. Conversions themselves: export_test.cpp.
#include "src/tools/cli/ckpt.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "checkpoint/index/best.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/files_check.hpp"
#include "checkpoint/index/retention.hpp"
#include "checkpoint/index/state_folder.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/private_place.hpp"
#include "src/snapshot/seal.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs one of the verbs; the exit code comes with the output.
template <class Verb>
std::pair<int, std::string> output_of(Verb verb) {
  std::ostringstream out;
  const int code = verb(out);
  return {code, out.str()};
}

struct CkptTool : ::testing::Test {
  const Folder folder;
  const fs::path run = folder.path() / "run", checkpoints = run / "checkpoints";
  Whole whole{odd_tensors(), 5};

  CkptTool() {
    fs::create_directories(run);
    for (std::int64_t step : {5, 10}) {
      Whole at_step(odd_tensors(), step);
      save(checkpoints, at_step, step, {1, 2}, even_layout(at_step.tensors, 2));
    }
  }
};

TEST_F(CkptTool, lists) {
  const auto [code, text] = output_of([&](auto& out) { return tool::ckpt_ls(run, false, out); });
  EXPECT_EQ(code, 0);
  EXPECT_LT(text.find("        10  "), text.find("         5  "));
  EXPECT_THAT(text, HasSubstr(digest_text(state_digest(whole.tensors, whole.digests()))));

  // When it was committed, and not what became of its files since then.
  CommitRecord record = read_commit_record(checkpoints / "step-00000005").value();
  record.committed = 1'795'000'000;
  write_file(checkpoints / "step-00000005" / commit_record_name, to_text(record));
  fs::remove(checkpoints / "step-00000010" / commit_record_name);  // as formats 1 to 4 are
  const auto times = output_of([&](auto& out) { return tool::ckpt_ls(run, false, out); }).second;
  EXPECT_THAT(times,
              AllOf(HasSubstr("committed"), HasSubstr("  unknown  "), HasSubstr("  2026-11-18T11:06:40Z  ")));

  const auto verified = output_of([&](auto& out) { return tool::ckpt_verify(run, true, out); });
  EXPECT_EQ(verified.first, 0) << "the state is whole";
  const auto verdicts = nlohmann::json::parse(verified.second)["checkpoints"];
  EXPECT_THAT(verdicts[0]["remarks"].dump(), HasSubstr("commit.json: it is missing"));
  EXPECT_EQ(verdicts[1]["remarks"].size(), 0u);
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_verify(run, false, out); }).second,
              HasSubstr("commit.json: it is missing"));

  fs::resize_file(checkpoints / "step-00000010" / "shard-00001.h5", 100);
  const auto [code2, text2] = output_of([&](auto& out) { return tool::ckpt_ls(checkpoints, false, out); });
  EXPECT_EQ(code2, 0);
  EXPECT_THAT(text2, HasSubstr("10  damaged: "));
  const auto [code3, text3] =
      output_of([&](auto& out) { return tool::ckpt_ls(run.string() + "/", true, out); });
  const auto json = nlohmann::json::parse(text3);
  EXPECT_EQ(json["checkpoints"].size(), 2u);
  EXPECT_THAT(json["checkpoints"][0]["damaged"].get<std::string>(),
              HasSubstr("shard-00001.h5 has 100 bytes"));
  EXPECT_EQ(json["checkpoints"][1]["tokens"], 5 * 4096);
  EXPECT_EQ(json["checkpoints"][1]["committed"], "2026-11-18T11:06:40Z");
}

TEST_F(CkptTool, shows) {
  const auto [code, text] =
      output_of([&](auto& out) { return tool::ckpt_show(checkpoints / "step-00000005", false, out); });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text, HasSubstr("model/model.embed_tokens.weight"));
  EXPECT_THAT(text, HasSubstr("37 x 53"));
  EXPECT_THAT(text, HasSubstr("HYBRID_SHARD"));
  const auto [code2, text2] =
      output_of([&](auto& out) { return tool::ckpt_show(run, true, out); });  // the newest
  const auto json = nlohmann::json::parse(text2);
  EXPECT_EQ(json["schema_version"], 2);
  EXPECT_EQ(json["step"], 10);
  EXPECT_EQ(json["tensors"].size(), whole.tensors.size());
  EXPECT_EQ(json["shards"].size(), 2u);
  EXPECT_EQ(json["format"], format_version);
  EXPECT_EQ(json["tensors"][0]["dtype"], "fp32");
  EXPECT_EQ(json["tensors"][12]["dtype"], "bf16");  // the second moments
  EXPECT_THAT(text, HasSubstr("  bf16  "));
  EXPECT_FALSE(json["levels"].contains("local"));
}

/// A run of another program, which writes a file for each step.
struct ProgramRun : CkptTool {
  const fs::path other = folder.path() / "other", own = folder.path() / "own";
  const fs::path theirs = RunDir{other}.checkpoints();

  ProgramRun() {
    fs::create_directories(theirs);
    fs::create_directories(own);
    for (const std::int64_t step : {5, 10}) save_files(step, 1);
  }
  void write_model(std::int64_t step) const {
    write_file(own / ("model-" + std::to_string(step)), std::string(2048, 'x'));
  }
  void save_files(std::int64_t step, int attempt) const {
    write_model(step);
    const std::string name = "model-" + std::to_string(step);
    Commit commit(theirs, step, {1, attempt}, 1);
    const nlohmann::json list = {{name, 2048, file_digest(own / name)}};
    commit.add(0, true,
               nlohmann::json{
                   {"kind", "files"}, {"path", own.string()}, {"files", 1}, {"bytes", 2048}, {"list", list}}
                   .dump());
    ASSERT_FALSE(commit.failed()) << commit.why();
    commit.commit();
  }
  /// The files of that step are being written, and their checkpoint is an hour old.
  void begin_to_save_again(std::int64_t step) const {
    const fs::path manifest = committed_path(theirs, step) / manifest_file_name;
    fs::last_write_time(manifest, fs::last_write_time(manifest) - std::chrono::hours(1));
    write_file(own / ("model-" + std::to_string(step)), std::string(1024, 'x'));
  }
};

TEST_F(ProgramRun, showsTheNewestThatIsWholeWhileOneIsSavedAgain) {
  begin_to_save_again(10);
  const auto show = [&] { return output_of([&](auto& out) { return tool::ckpt_show(other, false, out); }); };
  EXPECT_THAT(show().second, HasSubstr("model-5"));
  save_files(10, 2);
  EXPECT_THAT(show().second, HasSubstr("model-10"));
}

TEST_F(ProgramRun, verifiesTheNewestWhenItIsSavedAgain) {
  begin_to_save_again(10);
  std::atomic<bool> verified = false;
  std::thread program([&] {
    const auto is_read = [&] {  // by verify, which holds a lease then
      return std::ranges::any_of(entries_of(theirs), [](const std::string& name) {
        return parse_name(name).kind == Name::Kind::lease && parse_name(name).step == 10;
      });
    };
    while (!is_read() && !verified) std::this_thread::yield();
    save_files(10, 2);
  });
  const auto [code, text] = output_of([&](auto& out) { return tool::ckpt_verify(other, false, out); });
  verified = true;
  program.join();
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("step-00000010: good"));
}

/// The verbs do the same.
TEST_F(ProgramRun, knowsItsFiles) {
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_ls(other, false, out); }).second,
              AllOf(HasSubstr("        10  "), HasSubstr("2.00 KiB       1  "),
                    HasSubstr("files in " + own.string())));
  const auto listed = nlohmann::json::parse(
      output_of([&](auto& out) { return tool::ckpt_ls(other, true, out); }).second)["checkpoints"];
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0]["kind"], "files");
  EXPECT_EQ(listed[0]["step"], 10);
  EXPECT_EQ(listed[0]["file_count"], 1);
  EXPECT_EQ(listed[0]["folder"], own.string());
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_show(other, false, out); }).second,
              AllOf(HasSubstr("files of another program"), HasSubstr("model-10")));
  const auto shown =
      nlohmann::json::parse(output_of([&](auto& out) { return tool::ckpt_show(other, true, out); }).second);
  EXPECT_EQ(shown["format"], files_version);
  EXPECT_EQ(shown["files"][0]["digest"], file_digest(own / "model-10"));
  const auto good = output_of([&](auto& out) { return tool::ckpt_verify(other, false, out); });
  EXPECT_EQ(good.first, 0);
  EXPECT_THAT(good.second, HasSubstr("step-00000010: good (2.00 KiB, 1 files)"));
  const auto flip = [&] {  // as bits rot: the time of the file stays
    const auto written = fs::last_write_time(own / "model-10");
    flip_bit(own / "model-10", 9);
    fs::last_write_time(own / "model-10", written);
  };
  flip();
  const auto damaged = output_of([&](auto& out) { return tool::ckpt_verify(other, false, out); });
  EXPECT_EQ(damaged.first, 1);
  EXPECT_THAT(damaged.second, HasSubstr("step-00000010: DAMAGED\n  " + own.string() +
                                        "/model-10 does not match its digest\n"));
  EXPECT_THROW(output_of([&](auto& out) { return tool::ckpt_diff({run, other, false, false}, out); }), Error);
  flip();
  EXPECT_THAT(output_of([&](auto& out) {
                return tool::ckpt_prune({other, {}, {}, false, false, false}, out);
              }).second,
              HasSubstr("2 of 2 checkpoints stay (keep 3, of other programs' files all,"));
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_pin(other, 5, false, out); }).second,
              HasSubstr("step 5 is pinned"));
  EXPECT_THAT(output_of([&](auto& out) {
                return tool::ckpt_prune({other, 1, {}, false, false, false}, out);
              }).second,
              HasSubstr("2 of 2 checkpoints stay"));
  EXPECT_EQ(output_of([&](auto& out) { return tool::ckpt_pin(other, 5, true, out); }).first, 0);
  EXPECT_THAT(output_of([&](auto& out) {
                return tool::ckpt_prune({other, 1, {}, true, false, false}, out);
              }).second,
              HasSubstr("would remove step 5\n"));
  EXPECT_THAT(output_of([&](auto& out) {
                return tool::ckpt_prune({other, 1, {}, false, false, false, {own}}, out);
              }).second,
              HasSubstr("removed step 5\n"));
  EXPECT_THAT(files::list(own), ElementsAre("model-10"));
}

TEST_F(CkptTool, makesAnIndexWhenItIsAskedTo) {
  const fs::path index = checkpoints / "step-00000010" / index_file_name;
  EXPECT_FALSE(fs::exists(index)) << "a save makes none";
  for (int again = 0; again < 2; ++again) {
    const auto [code, text] = output_of([&](auto& out) { return tool::ckpt_index(run, out); });
    EXPECT_EQ(code, 0);
    EXPECT_THAT(text, HasSubstr("step-00000010/index.h5: step 10, 18 tensors"));
    EXPECT_TRUE(fs::exists(index));
    EXPECT_EQ(output_of([&](auto& out) { return tool::ckpt_verify(run, false, out); }).first, 0);
  }
  write_file(index, "damaged");
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_verify(run, false, out); }).second,
              HasSubstr("index.h5: cannot open"));
  EXPECT_TRUE(holds(checkpoints / "step-00000010", whole.tensors, 10)) << "no load needs it";
  const fs::path old = folder.path() / "step-00000003";
  fs::copy(fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden/version-4", old);
  const std::string before = read_file(old / index_file_name);
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_index(old, out); }).second,
              HasSubstr("written with the checkpoint, which has format 4"));
  EXPECT_EQ(read_file(old / index_file_name), before);
}

TEST_F(CkptTool, verifies) {
  const auto [code, text] = output_of([&](auto& out) { return tool::ckpt_verify(run, false, out); });
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("step-00000010: good"));
  flip_bit(checkpoints / "step-00000005" / "shard-00000.h5", 8 * 16000);
  const auto [code2, text2] = output_of([&](auto& out) { return tool::ckpt_verify(run, false, out); });
  EXPECT_EQ(code2, 1);
  EXPECT_THAT(text2, HasSubstr("step-00000010: good"));
  const auto [code3, text3] = output_of([&](auto& out) { return tool::ckpt_verify(run, true, out); });
  const auto json = nlohmann::json::parse(text3);
  EXPECT_EQ(code3, 1);
  EXPECT_EQ(json["good"], false);
  EXPECT_EQ(json["checkpoints"][0]["verdict"], "good");
  EXPECT_EQ(json["checkpoints"][1]["verdict"], "damaged");
  EXPECT_FALSE(json["checkpoints"][1]["problems"].empty());
  EXPECT_THAT(
      text2, HasSubstr("step-00000005: DAMAGED\n  shard-00000.h5: block 0 of 1 does not match its checksum"));
}

TEST_F(CkptTool, tellsWhatLiesInTheLocalLevel) {
  const fs::path local = folder.path() / "local";
  fs::create_directory(local);
  files::replace_atomically(RunDir{run}.config(),
                            "resolved = true\n[checkpoint]\nlocal = \"" + local.string() + "\"\n");
  control::make_secret(RunDir{run}.secret());
  const fs::path level = control::make_private(control::local_level_place({run}, local),
                                               control::read_secret(RunDir{run}.secret()));
  for (const int rank : {0, 1}) {
    StateFolder file(level / snapshot::folder_name(rank, rank == 1), LocalIdentity{1, 2, rank, 2}, 4096, 2,
                     false);
    file.seal(0, {{10, 100, 10, "", ""}, {1}});
    if (rank == 0) file.seal(1, {{11, 110, 11, "", ""}, {1}});
  }
  write_file(level / "rank-00002", "not one");
  const auto [code, text] = output_of([&](auto& out) { return tool::ckpt_ls(run, false, out); });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text, AllOf(HasSubstr("     0   own    4.00 KiB  10, 11\n"),
                          HasSubstr("     1  copy    4.00 KiB  10\n"), Not(HasSubstr("     2   own"))));
  const auto [code2, text2] = output_of([&](auto& out) { return tool::ckpt_ls(run, true, out); });
  const auto json = nlohmann::json::parse(text2);
  EXPECT_EQ(json["local"]["files"].size(), 2u);
  EXPECT_EQ(json["local"]["files"][0]["buffers"][1]["step"], 11);
  EXPECT_EQ(json["local"]["files"][1]["buffers"][1]["sealed"], false);
  const auto [code3, text3] = output_of([&](auto& out) { return tool::ckpt_show(run, false, out); });
  EXPECT_THAT(text3, HasSubstr("levels        shared, local here (2 of 2 ranks)"));
}

TEST_F(CkptTool, diffSaysByItsExitCodeWhetherStatesAreTheSame) {
  const auto run_diff = [&](const tool::DiffOrder& order) {
    return output_of([&](auto& out) { return tool::ckpt_diff(order, out); });
  };
  const fs::path five = checkpoints / "step-00000005";
  const auto [code, text] = run_diff({run, five, true, false});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("fact     step: 10 -> 5\n"), HasSubstr("changed  model/model.scale: 1 of 1 elements"),
            HasSubstr("different state: 3 tensors are the same, 15 changed, 0 added, 0 removed")));
  const auto [code2, text2] = run_diff({five, five, true, false});
  EXPECT_EQ(code2, 0);
  EXPECT_THAT(text2, HasSubstr("same state: 18 tensors are the same"));
  const auto [code3, text3] = run_diff({run, five, true, true});
  const auto json = nlohmann::json::parse(text3);
  EXPECT_EQ(json["same_state"], false);
  EXPECT_EQ(json["changed"].size(), 15u);
  EXPECT_EQ(json["changed"][0]["elements"], 37 * 53);
}

TEST_F(CkptTool, pruneDoesWhatItSaidItWould) {
  write_file(checkpoints / ".trash-00000001-1", "");
  fs::create_directory(checkpoints / "step-00000007.tmp-0-1");
  const auto prune = [&](bool dry_run) {
    return output_of([&](auto& out) {
             return tool::ckpt_prune({run, 1, 0.0, dry_run, false, false}, out);
           })
        .second;
  };
  const std::string before = prune(true);
  EXPECT_THAT(before, AllOf(HasSubstr("would remove step 5\n"), HasSubstr("would remove .trash-00000001-1\n"),
                            HasSubstr("would remove step-00000007.tmp-0-1\n"),
                            HasSubstr("1 of 2 checkpoints would stay")));
  EXPECT_EQ(files::list(checkpoints).size(), 4u);
  const auto json = nlohmann::json::parse(output_of([&](auto& out) {
                                            return tool::ckpt_prune({run, 1, 0.0, true, true, false}, out);
                                          }).second);
  EXPECT_EQ(json["steps"], nlohmann::json({5}));
  EXPECT_EQ(json["remains"].size(), 2u);
  EXPECT_EQ(json["stay"], 1);
  EXPECT_THAT(prune(false), AllOf(HasSubstr("removed step 5\n"), HasSubstr("1 of 2 checkpoints stay")));
  EXPECT_THAT(files::list(checkpoints), ElementsAre("step-00000010"));
}

TEST_F(CkptTool, pruneLeavesALiveRunAlone) {
  const RunDir dir{run};
  const auto exit_of = [&](bool force) {
    try {
      std::ostringstream out;
      return static_cast<Exit>(tool::ckpt_prune({run, 1, 0.0, false, false, force}, out));
    } catch (const Error& e) {
      return e.exit();
    }
  };
  files::replace_atomically(dir.owner(), "{}");
  EXPECT_EQ(exit_of(false), Exit::usage);  // a job that has not said that it is over
  {
    const files::Fd bare = files::open(dir.bare_lock(), O_RDWR | O_CREAT);
    ASSERT_EQ(::flock(bare.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(exit_of(true), Exit::usage);
  }
  EXPECT_EQ(files::list(checkpoints).size(), 2u);
  files::replace_atomically(dir.result(), "{}");
  EXPECT_EQ(exit_of(false), Exit::done);
  EXPECT_THAT(files::list(checkpoints), ElementsAre("step-00000010"));
}

TEST_F(CkptTool, pinsByPathOrStep) {
  const auto pin = [&](const fs::path& path, std::optional<std::int64_t> step, bool unpin) {
    return output_of([&](auto& out) { return tool::ckpt_pin(path, step, unpin, out); }).second;
  };
  EXPECT_EQ(pin(run, {}, false), "step 10 is pinned\n");
  EXPECT_EQ(pin(run, 5, false), "step 5 is pinned\n");
  EXPECT_EQ(pin(checkpoints / "step-00000005", {}, false), "step 5 already was pinned\n");
  EXPECT_THAT(output_of([&](auto& out) { return tool::ckpt_ls(run, false, out); }).second,
              HasSubstr("  pinned\n"));
  EXPECT_EQ(pin(run, 10, true), "step 10 is not pinned\n");
  EXPECT_EQ(pin(run, 10, true), "step 10 already was not pinned\n");
  EXPECT_THROW(pin(run, 6, false), Error);
  EXPECT_THROW(pin(checkpoints / "step-00000005", 5, false), Error);
}

TEST_F(CkptTool, showsWhichIsTheBest) {
  checkpoint::mark_best(checkpoints, 5, 1.5);
  const auto listed = [&](bool json) {
    return output_of([&](auto& out) { return tool::ckpt_ls(run, json, out); }).second;
  };
  EXPECT_THAT(listed(false), HasSubstr("  best\n"));
  const auto json = nlohmann::json::parse(listed(true))["checkpoints"];
  EXPECT_EQ(json[0]["best"], false);
  EXPECT_EQ(json[1]["best"], true);
  EXPECT_THAT(
      output_of([&](auto& out) { return tool::ckpt_show(checkpoints / "step-00000005", false, out); }).second,
      HasSubstr("best          yes"));
}

TEST_F(CkptTool, refusesOtherPaths) {
  std::ostringstream out;
  EXPECT_THROW(tool::ckpt_ls(folder.path() / "nothing", false, out), Error);
  EXPECT_THROW(tool::ckpt_ls(folder.path(), false, out), Error);
  EXPECT_THROW(tool::ckpt_ls(checkpoints / "step-00000005", false, out), Error);
  EXPECT_THROW(tool::ckpt_show(folder.path(), false, out), Error);
}

}  // namespace
}  // namespace holdfast::checkpoint
