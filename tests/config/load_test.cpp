#include "src/config/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/base/env.hpp"
#include "src/base/errors.hpp"
#include "src/base/printable.hpp"
#include "src/config/bind.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using test::refusal_of;
using test::Scratch;
using testing::HasSubstr;

/// A variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { env::set(name, value); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Load, TakesATextForAListOfHeldOutFiles) {
  const Scratch dir;
  const auto of = [&](const std::string& value) {
    return load(dir.write("job.toml", "[data]\nvalidation = " + value + "\n")).config.data.validation;
  };
  EXPECT_THAT(of("\"a.bin\""), testing::ElementsAre("a.bin"));
  EXPECT_THAT(of("[\"a.bin\", \"b.bin\"]"), testing::ElementsAre("a.bin", "b.bin"));
  EXPECT_THAT(of("\"\""), testing::IsEmpty()) << "as in the settings of earlier runs";
  EXPECT_THAT(load_defaults({"data.validation=a.bin"}).config.data.validation, testing::ElementsAre("a.bin"));
}

TEST(Load, ReadsEveryKindOfValue) {
  const Scratch dir;
  const auto file = dir.write("job.toml", R"([run]
name = "a job"
[cluster]
nodes = 4
[rank]
command = ["sleep", "1"]
[train]
seed = 9007199254740993
activation_checkpointing = "attention"
[shard]
strategy = "hfsdp"
keep_gathered = "0,3"
[precision]
parameters = "bf16"
[guard]
on_nan = "rollback"
on_spike = "skip"
[optim]
lr = 1
beta2 = 0.99
schedule = "wsd"
groups = ["*norm* weight_decay=0"]
[trace]
flight_recorder = false
)");
  const auto c = load(file).config;
  EXPECT_EQ(c.run.name, "a job");
  EXPECT_EQ(c.cluster.nodes, 4);
  EXPECT_EQ(c.rank.command, (std::vector<std::string>{"sleep", "1"}));
  EXPECT_EQ(c.train.seed, 9007199254740993u);
  EXPECT_EQ(c.train.activation_checkpointing, ActivationCheckpointing::attention);
  EXPECT_EQ(c.shard.strategy, Strategy::hfsdp);
  EXPECT_EQ(c.shard.keep_gathered, "0,3");
  EXPECT_EQ(c.precision.parameters, Precision::bf16);
  EXPECT_EQ(c.precision.reduce, Precision::fp32);
  EXPECT_EQ(c.guard.on_nan, GuardAction::rollback);
  EXPECT_EQ(c.guard.on_spike, GuardAction::skip);
  EXPECT_EQ(c.optim.schedule, Schedule::wsd);
  EXPECT_EQ(c.optim.groups, (std::vector<std::string>{"*norm* weight_decay=0"}));
  EXPECT_FALSE(c.trace.flight_recorder);
  EXPECT_EQ(c.optim.lr, 1.0);
  EXPECT_EQ(c.optim.beta2, 0.99);
  EXPECT_EQ(c.train.steps, Train{}.steps);
}

struct BadText {
  const char* text;
  std::vector<const char*> says;
};

TEST(Load, RefusesWithFileLineAndSuggestion) {
  const std::vector<BadText> cases = {
      {"[train]\nseqence = 3\n",
       {"unknown key train.seqence (", "job.toml:2)", "Did you mean train.sequence?"}},
      {"\n[trian]\nsteps = 3\n", {"unknown table trian (", "job.toml:2)", "Did you mean train?"}},
      {"trian.steps = 3\n", {"unknown table trian (", "Did you mean train?"}},
      {"steps = 3\n", {"unknown key steps (", "job.toml:1)", "Did you mean train.steps?"}},
      {"[train]\nlr = 3\n", {"unknown key train.lr", "Did you mean optim.lr?"}},
      {"[train]\nzzzzzzzz = 3\n", {"unknown key train.zzzzzzzz", "[train] has steps, epochs, sequence,"}},
      {"[qqqqqqqqqq]\n", {"unknown table qqqqqqqqqq", "The tables are run, cluster,"}},
      {"[train.inner]\nx = 1\n", {"unknown table train.inner"}},
      {"train = 3\n", {"train is a table, not a value", "job.toml:1"}},
      {"[[train]]\nsteps = 3\n", {"[[train]] may not be repeated", "job.toml:1"}},
      {"[train]\nsteps = \"3\"\n", {"train.steps must be a whole number, not \"3\" (", "job.toml:2"}},
      {"[train]\nsteps = 3.5\n", {"train.steps must be a whole number, not 3.5"}},
      {"[train]\nsteps = 0\n", {"train.steps must be at least 1, not 0 ("}},
      {"[train]\nglobal_batch = 99999999999\n",
       {"train.global_batch must be between 1 and 2147483647, not 99999999999"}},
      {"[train]\nsteps = 1979-05-27\n", {"train.steps must be a whole number, not a date or time"}},
      {"[cluster]\nspares = -1\n", {"cluster.spares must be between 0 and 65536, not -1", "job.toml:2"}},
      {"[cluster]\nnodes = 0\n", {"cluster.nodes must be between 1 and 65536, not 0"}},
      {"[supervise]\nport = 70000\n", {"supervise.port must be between 0 and 65535, not 70000"}},
      {"[optim]\nlr = \"x\"\n", {"optim.lr must be a number, not \"x\""}},
      {"[optim]\nlr = nan\n", {"optim.lr must be a number, not nan"}},
      {"[run]\nname = 7\n", {"run.name must be a text, not 7", "Put it in quotes?"}},
      {"[run]\nname = \"a\\u0000b\"\n", {"run.name must be free of NUL characters"}},
      {"[run]\nname = \"a\\u001b[31m\"\n", {"run.name must be a name without control characters"}},
      {"[run]\nname = \"a\\u202E\"\n", {"run.name must be a name without control characters"}},
      {"[rank]\ncommand = \"sleep 1\"\n",
       {"rank.command must be a list of texts", "Write it as [\"one\", \"two\"]?"}},
      {"[rank]\ncommand = [\"sleep\", 1]\n", {"rank.command must be a list of texts"}},
      {"[rank]\nlaunch = \"mpy\"\n",
       {"rank.launch must be one of auto, mpi, direct, not \"mpy\"", "Did you mean mpi?"}},
      {"[shard]\nstrategy = \"HYBRID_SHARD\"\n",
       {"shard.strategy must be one of", "Did you mean hybrid_shard?"}},
      {"[shard]\nstrategy = \"shard_grad\"\n",
       {"shard.strategy must be one of no_shard, full_shard, hybrid_shard, shard_grad_op, hfsdp",
        "Did you mean shard_grad_op?"}},
      {"[precision]\nparameters = \"fp16\"\n",
       {"precision.parameters must be one of fp32, bf16, auto, not \"fp16\""}},
      {"[guard]\non_nan = \"report\"\n", {"guard.on_nan must be one of stop, skip, rollback"}},
      {"[guard]\nwindow = 129\n", {"guard.window must be between 4 and 128, not 129"}},
      {"[shard]\nprefetch_forward = 17\n", {"shard.prefetch_forward must be between 0 and 16, not 17"}},
      {"[run]\nother_numerics = \"ignore\"\n", {"run.other_numerics must be one of refuse, continue"}},
      {"[train]\nsteps = 3\nsteps = 4\n", {"job.toml:3 is not valid TOML"}},
      {"[train\n", {"job.toml:1 is not valid TOML"}},
      {"[run]\nname = \"\xff\"\n", {"is not valid TOML"}},
  };
  const Scratch dir;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const auto file = dir.write("job.toml", c.text);
    const auto refusal = refusal_of([&] { load(file); });
    EXPECT_EQ(refusal.exit, Exit::usage);
    for (const auto* part : c.says) EXPECT_THAT(refusal.text, HasSubstr(part));
  }
}

TEST(Load, NamesAFileThatCannotBeRead) {
  const auto refusal = refusal_of([] { load("/no/such/job.toml"); });
  EXPECT_EQ(refusal.exit, Exit::usage);
  EXPECT_EQ(refusal.text,
            "there is no job file /no/such/job.toml (it was looked for in /no/such). Is its path right?");
}

TEST(Load, SaysWhatMayHaveBeenMeantByAPath) {
  const Scratch dir;
  dir.write("my_cluster.toml", "");
  const auto text_of = [&](const char* kind, const std::string& name) {
    return refusal_of([&] { find_config(kind, dir.path() / name); }).text;
  };
  EXPECT_THAT(
      text_of("clusters", "my_clustr.toml"),
      AllOf(HasSubstr("there is no cluster file "), HasSubstr("(it was looked for in " + dir.path().string()),
            HasSubstr("Did you mean my_cluster.toml?")));
  EXPECT_THAT(text_of("clusters", "x.toml"), HasSubstr("Write one with 'holdfast init -o FILE'?"));
  EXPECT_THAT(text_of("jobs", ""),
              HasSubstr("is a folder, not a job file. Give the job file: to continue a run"));
}

TEST(Load, PrecedenceIsFlagEnvironmentFileDefault) {
  const Scratch dir;
  const auto file = dir.write("job.toml", "[train]\nsteps = 1\n");
  const auto none = dir.write("none.toml", "");
  EXPECT_EQ(load(none).config.train.steps, 100);
  EXPECT_EQ(load(none).origin.at("train.steps"), "default");
  EXPECT_EQ(load(file).config.train.steps, 1);
  EXPECT_EQ(load(file).origin.at("train.steps"), file.string() + ":2");
  EXPECT_EQ(load(none, {"train.steps=3"}).config.train.steps, 3);
  {
    const Variable variable("HOLDFAST_SET_TRAIN__STEPS", "2");
    EXPECT_EQ(load(none).config.train.steps, 2);
    EXPECT_EQ(load(file).config.train.steps, 2);
    EXPECT_EQ(load(file).origin.at("train.steps"), "environment HOLDFAST_SET_TRAIN__STEPS");
    EXPECT_EQ(load(file, {"train.steps=3"}).config.train.steps, 3);
    EXPECT_EQ(load(file, {"train.steps=3"}).origin.at("train.steps"), "flag");
  }
  EXPECT_EQ(load(file, {"train.steps=3", "train.steps=4"}).config.train.steps, 4) << "the last flag wins";
}

TEST(Load, TheEnvironmentIsStrictToo) {
  const Scratch dir;
  const auto file = dir.write("job.toml", "");
  {
    const Variable variable("HOLDFAST_SET_TRAIN__STEP", "2");
    EXPECT_THAT(refusal_of([&] { load(file); }).text,
                HasSubstr("variable HOLDFAST_SET_TRAIN__STEP names no setting (HOLDFAST_SET_<TABLE>__<KEY> "
                          "does). Did you mean HOLDFAST_SET_TRAIN__STEPS?"));
  }
  const Variable variable("HOLDFAST_SET_TRAIN__STEPS", "many");
  EXPECT_EQ(refusal_of([&] { load(file); }).text,
            "train.steps must be a whole number, not \"many\" (environment HOLDFAST_SET_TRAIN__STEPS). Write "
            "digits "
            "alone, without quotes?");
}

TEST(Load, AResolvedFileIsNotChangedByTheEnvironment) {
  const Scratch dir;
  RunConfig config;
  config.train.steps = 7;
  const auto file = dir.write("config.toml", to_toml(config));
  const Variable variable("HOLDFAST_SET_TRAIN__STEPS", "9");
  EXPECT_EQ(load(file).config.train.steps, 7);
  EXPECT_EQ(load(file, {"train.steps=8"}).config.train.steps, 8);
}

TEST(Load, FlagsTakeTomlSpellingOrAPlainWord) {
  const Scratch dir;
  const auto file = dir.write("job.toml", "");
  const auto with = [&](const std::string& set) { return load(file, {set}).config; };
  EXPECT_EQ(with("run.name=plain words").run.name, "plain words");
  EXPECT_EQ(with("run.name=\"quoted\"").run.name, "quoted");
  EXPECT_EQ(with("run.dir=\"quoted\\n\"").run.dir, "quoted\n");
  EXPECT_EQ(with("run.name=300").run.name, "300");
  EXPECT_EQ(with("run.name=true").run.name, "true");
  EXPECT_EQ(with("run.name=a=b").run.name, "a=b");
  EXPECT_EQ(with("run.name=").run.name, "");
  EXPECT_EQ(with("run.dir=x\"\n[train]\nsteps = 1").run.dir, "x\"\n[train]\nsteps = 1");
  EXPECT_EQ(with("run.dir=\"x\"\n[train]\nsteps = 1").train.steps, 100)
      << "a value never becomes a second key";
  EXPECT_EQ(with("data.tokens=/tmp/$(touch x) \"y\".tokens").data.tokens, "/tmp/$(touch x) \"y\".tokens");
  EXPECT_EQ(with("shard.strategy=no_shard").shard.strategy, Strategy::no_shard);
  EXPECT_EQ(with("rank.command=[\"a\", \"b c\"]").rank.command, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(with("train.steps=1_000").train.steps, 1000);
}

TEST(Load, SaysAllThatIsWrongAtOnce) {
  const Scratch dir;
  const auto file =
      dir.write("job.toml", "[train]\nstps = 3\nsteps = \"3\"\n[trian]\na = 1\nb = 2\n[optim]\nlr = 1e-4\n");
  try {
    load(file, {"train.lr=1", "run.name=good"});
    FAIL();
  } catch (const Errors& errors) {
    std::vector<std::string> says;
    for (const Error& error : errors.all()) says.emplace_back(error.what());
    EXPECT_THAT(says,
                testing::ElementsAre(HasSubstr("unknown key train.stps"),
                                     HasSubstr("train.steps must be a whole number"),
                                     HasSubstr("unknown table trian"), HasSubstr("unknown key train.lr")));
  }
}

TEST(Load, RefusesBadFlags) {
  const Scratch dir;
  const auto file = dir.write("job.toml", "");
  const auto says = [&](const std::string& set) { return refusal_of([&] { load(file, {set}); }).text; };
  EXPECT_EQ(says("train.steps"),
            "--set train.steps gives no value (it has no '='). Write --set table.key=value?");
  EXPECT_THAT(says("train.stps=1"),
              HasSubstr("unknown key train.stps (--set train.stps). Did you mean train.steps?"));
  EXPECT_THAT(says("stps=1"), HasSubstr("unknown key stps"));
  EXPECT_THAT(says("train.steps=1\nsequence = 3"), HasSubstr("train.steps must be a whole number"));
  EXPECT_THAT(says("cluster.spares=-1"),
              HasSubstr("cluster.spares must be between 0 and 65536, not -1 (--set cluster.spares)"));
  EXPECT_THAT(says("run.name=\xff"), HasSubstr("run.name must be valid UTF-8"));
  EXPECT_THAT(says("rank.command=sleep"), HasSubstr("rank.command must be a list of texts"));
}

RunConfig random_config(std::mt19937_64& random) {
  const std::vector<std::string> nasty = {"",
                                          " ",
                                          "a b",
                                          "\"",
                                          "'",
                                          "'''",
                                          "\"\"\"",
                                          "\\",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "$(touch x)",
                                          "`id`",
                                          "a\nb = 3\n[train]",
                                          "# no comment",
                                          "\x01\x1f\x7f",
                                          "ü",
                                          "☃",
                                          "😀",
                                          "\xc2\x85",
                                          "\xef\xbb\xbf",
                                          "a;b|c&d",
                                          "%x",
                                          "\\u0041"};
  const auto text = [&] {
    std::string out;
    for (auto pieces = random() % 4; pieces > 0; --pieces) {
      if (random() % 2) {
        out += nasty[random() % nasty.size()];
      } else {
        out += static_cast<char>(1 + random() % 127);
      }
    }
    return out;
  };
  RunConfig c;
  for (const auto& s : run_settings()) {
    const auto whole = static_cast<std::int64_t>(random() >> (1 + random() % 63));
    switch (s.kind) {
      case Kind::text:
        s.set(c, s.key == "name" ? printable_line(text()) : text());  // a name has no control characters
        break;
      case Kind::list:
        s.set(c, std::vector<std::string>{text(), text()});
        break;
      case Kind::numbers:
        s.set(c, std::vector<double>{static_cast<double>(whole), 0.5});
        break;
      case Kind::choice:
        s.set(c, s.choices[random() % s.choices.size()]);
        break;
      case Kind::boolean:
        s.set(c, random() % 2 == 0);
        break;
      case Kind::integer: {
        const auto least = static_cast<std::int64_t>(s.least);
        s.set(c, s.most < 1e10 ? least + whole % (static_cast<std::int64_t>(s.most) - least + 1)
                               : std::max(least, whole));
        break;
      }
      case Kind::number:
        s.set(c, std::lerp(std::max(s.least, 0.), std::max(s.least, 1.),
                           static_cast<double>(random() >> 1) * 0x1p-63));
        break;
    }
  }
  return c;
}

TEST(Load, WhatIsWrittenReadsBackTheSame) {
  const Scratch dir;
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const RunConfig before = random_config(random);
    const std::string text = to_toml(before);
    const auto after = load(dir.write("config.toml", text)).config;
    ASSERT_EQ(before, after) << text;
    ASSERT_EQ(text, to_toml(after));
  }
}

TEST(Load, DamagedFilesAreErrorsNotCrashes) {
  const Scratch dir;
  const std::string good = to_toml(RunConfig{});
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = good;
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      const auto at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        default:
          text.insert(at, text, random() % text.size(), random() % 20);
          break;
      }
    }
    try {
      load(dir.write("job.toml", text));
      ++accepted;
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::usage);
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 1000);
}

TEST(Load, EveryChoiceHasItsNameAndComesBack) {
  for (const auto& s : run_settings()) {
    if (s.kind != Kind::choice) continue;
    for (const auto& choice : s.choices) {
      RunConfig c;
      s.set(c, choice);
      EXPECT_EQ(std::get<std::string>(s.get(c)), choice) << s.name();
    }
  }
  EXPECT_EQ(name_of(Strategy::shard_grad_op), "shard_grad_op");
  EXPECT_EQ(name_of(Precision::bf16), "bf16");
  EXPECT_EQ(name_of(ActivationCheckpointing::full), "full");
  EXPECT_EQ(name_of(Schedule::constant), "constant");
  EXPECT_EQ(name_of(GuardAction::skip), "skip");
}

TEST(Load, EverySettingHasAnOriginAndAMeaning) {
  const Scratch dir;
  const auto loaded = load(dir.write("job.toml", ""));
  EXPECT_EQ(loaded.origin.size(), run_settings().size());
  for (const auto& s : run_settings()) EXPECT_FALSE(s.help.empty()) << s.name();
}

}  // namespace
}  // namespace holdfast::config
