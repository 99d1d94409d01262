// `holdfast ckpt ls|show|verify`.
#include "src/tool/ckpt.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::HasSubstr;

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
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["step"], 10);
  EXPECT_EQ(json["tensors"].size(), whole.tensors.size());
  EXPECT_EQ(json["shards"].size(), 2u);
}

TEST_F(CkptTool, verifies) {
  const auto [code, text] = output_of([&](auto& out) { return tool::ckpt_verify(run, out); });
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("step-00000010: good"));
  flip_bit(checkpoints / "step-00000005" / "shard-00000.h5", 8 * 16000);
  const auto [code2, text2] = output_of([&](auto& out) { return tool::ckpt_verify(run, out); });
  EXPECT_EQ(code2, 1);
  EXPECT_THAT(text2, HasSubstr("step-00000010: good"));
  EXPECT_THAT(
      text2, HasSubstr("step-00000005: DAMAGED\n  shard-00000.h5: block 0 of 1 does not match its checksum"));
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
