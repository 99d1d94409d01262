// Every input that the fuzzers start from, and every one that they once found something with.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "src/base/files.hpp"
#include "tests/control/message_samples.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {
namespace {

namespace fs = std::filesystem;

using Target = std::function<void(std::string_view)>;

void run_one(const std::string& bytes, const std::string& name, const Target& target) {
  EXPECT_NO_THROW(target(bytes)) << name;
  // And cut, and with each byte changed: a poor man's fuzzer for machines without the real one.
  for (std::size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 256) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1 << i % 8);
    EXPECT_NO_THROW(target(changed)) << name << " changed at " << i;
    EXPECT_NO_THROW(target(std::string_view(bytes).substr(0, i))) << name << " cut at " << i;
  }
}

int run_all(const fs::path& folder, const Target& target) {
  int inputs = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    run_one(files::read_text(entry.path()), entry.path(), target);
    ++inputs;
  }
  return inputs;
}

const fs::path tests = fs::path(HOLDFAST_SOURCE_DIR) / "tests";

TEST(FuzzRegression, manifests) { EXPECT_GE(run_all(tests / "fuzz/corpus/manifest", try_manifest), 3); }
TEST(FuzzRegression, votes) { EXPECT_GE(run_all(tests / "fuzz/corpus/vote", try_vote), 2); }
TEST(FuzzRegression, safetensors) {
  EXPECT_GE(run_all(tests / "fuzz/corpus/safetensors", try_safetensors), 3);
}

TEST(FuzzRegression, huggingFaceFolders) {
  EXPECT_GE(run_all(tests / "fuzz/corpus/hf_config", try_hf_config), 5);
}

TEST(FuzzRegression, adapterConfigs) {
  EXPECT_GE(run_all(tests / "fuzz/corpus/adapter_config", try_adapter_config), 4);
}

TEST(FuzzRegression, messages) {
  for (const auto& [message, text] : control::samples()) run_one(text, text, try_message);
  EXPECT_GE(run_all(tests / "fuzz/corpus/message", try_message), 1);
}
TEST(FuzzRegression, sessions) { EXPECT_GE(run_all(tests / "fuzz/corpus/session", try_session), 4); }
TEST(FuzzRegression, channels) { EXPECT_GE(run_all(tests / "fuzz/corpus/channel", try_channel), 3); }
TEST(FuzzRegression, seals) { EXPECT_GE(run_all(tests / "fuzz/corpus/seal", try_seal), 4); }
TEST(FuzzRegression, requestsOfMovers) {
  EXPECT_GE(run_all(tests / "fuzz/corpus/mover_request", try_mover_request), 6);
}
TEST(FuzzRegression, bulkStreams) { EXPECT_GE(run_all(tests / "fuzz/corpus/bulk", try_bulk), 4); }
TEST(FuzzRegression, templates) { EXPECT_GE(run_all(tests / "fuzz/corpus/jinja", try_jinja), 5); }
TEST(FuzzRegression, tokenizers) { EXPECT_GE(run_all(tests / "fuzz/corpus/tokenizer", try_tokenizer), 5); }
TEST(FuzzRegression, sentencePieceModels) {
  EXPECT_GE(run_all(tests / "fuzz/corpus/sentencepiece", try_sentencepiece), 4);
}

TEST(FuzzRegression, runDirectories) { EXPECT_GE(run_all(tests / "fuzz/corpus/run", try_run), 3); }
TEST(FuzzRegression, ledgers) { EXPECT_GE(run_all(tests / "fuzz/corpus/ledger", try_ledger), 2); }
TEST(FuzzRegression, foldersOfCheckpoints) {
  EXPECT_GE(run_all(tests / "fuzz/corpus/checkpoints", try_checkpoints), 3);
}
TEST(FuzzRegression, flightRecords) { EXPECT_GE(run_all(tests / "fuzz/corpus/flight", try_flight), 2); }
TEST(FuzzRegression, hostlists) { EXPECT_GE(run_all(tests / "fuzz/corpus/hostlist", try_hostlist), 4); }
TEST(FuzzRegression, choicesOfAlgorithms) { EXPECT_GE(run_all(tests / "fuzz/corpus/tuning", try_tuning), 2); }
TEST(FuzzRegression, cards) { EXPECT_GE(run_all(tests / "fuzz/corpus/card", try_card), 4); }
TEST(FuzzRegression, clusterFiles) {
  EXPECT_GE(run_all(fs::path(HOLDFAST_SOURCE_DIR) / "configs/clusters", try_cluster), 2);
  EXPECT_GE(run_all(tests / "fuzz/corpus/cluster", try_cluster), 1);
}
TEST(FuzzRegression, jobFiles) {
  EXPECT_GE(run_all(fs::path(HOLDFAST_SOURCE_DIR) / "configs/jobs", try_job), 2);
  EXPECT_GE(run_all(tests / "fuzz/corpus/job", try_job), 1);
}

}  // namespace
}  // namespace holdfast::fuzz
