#include "src/tools/cli/data_prepare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <span>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/data/token_file.hpp"
#include "src/tools/cli/data_show.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::tool {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Some English-looking prose with its own spacing, digits and a few characters beyond ASCII; ends in a line
/// feed.
std::string prose(std::uint32_t seed, int words) {
  static const char* const vocabulary[] = {
      "the",   "kelp", "holds",       "fast",  "to",    "rock",   "through", "every", "storm,",
      "and",   "sea",  "rises",       "again", "while", "boats",  "turn",    "home.", "Seven",
      "gulls", "1234", "caf\xC3\xA9", "sang",  "over",  "waters", "of",      "green", "\xE6\xB5\xB7"};
  std::string text;
  for (int i = 0; i < words; ++i) {
    seed = seed * 1664525u + 1013904223u;
    text += vocabulary[(seed >> 16) % std::size(vocabulary)];
    text += (seed >> 8) % 11 == 0 ? "\n\n  " : (seed >> 8) % 7 == 0 ? "\n" : " ";
  }
  return text + "\n";
}

class DataPrepareTest : public testing::Test {
 protected:
  DataPrepareTest() {
    std::string name = fs::temp_directory_path() / "holdfast-prepare-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::create_directory(folder_ / "text");
    settings_.input = {folder_ / "text"};
    settings_.output = folder_ / "tokens.bin";
    settings_.train_vocabulary = 320;
  }
  ~DataPrepareTest() override { fs::remove_all(folder_); }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / "text" / name, std::ios::binary) << text;
  }
  nlohmann::ordered_json prepare() const { return corpus::prepare(settings_, services()); }
  std::unique_ptr<text::Tokenizer> tokenizer() const {
    return text::open_tokenizer(folder_ / "tokens.model");
  }
  std::string decoded(const fs::path& path, std::int64_t first, std::int64_t last) const {
    const data::TokenFile file = data::TokenFile::open(path);
    std::vector<std::int32_t> tokens(last - first);
    file.copy(first, tokens);
    return tokenizer()->decode(tokens);
  }
  std::string refusal() const {
    try {
      prepare();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return error.what();
    }
    return "accepted";
  }

  fs::path folder_;
  corpus::Settings settings_;
};

TEST_F(DataPrepareTest, tokens_decode_to_the_documents) {
  const std::string a = "  " + prose(1, 3000), b = prose(2, 500) + "last line";
  put("a.txt", a), put("b.txt", b);
  const auto card = prepare();
  const data::TokenFile file = data::TokenFile::open(settings_.output);
  file.verify();
  EXPECT_EQ(card["read"]["documents"], 2);
  EXPECT_EQ(card["read"]["bytes"], a.size() + b.size());
  EXPECT_EQ(card["output"]["tokens"], file.size());
  EXPECT_EQ(card["output"]["identity"], file.identity());
  EXPECT_EQ(card["unknown"], 0);
  EXPECT_EQ(file.vocabulary(), 320);
  EXPECT_EQ(file.header().bytes_per_token, 2u);
  EXPECT_EQ(file.header().tokenizer, data::hash_bytes(files::read_text(folder_ / "tokens.model")));

  ASSERT_EQ(file.documents(), 2);
  std::vector<std::int32_t> tokens(as_size(file.size()));
  file.copy(0, tokens);
  for (const std::int64_t i : {0, 1}) EXPECT_EQ(tokens[file.document(i)], tokenizer()->document_start());
  EXPECT_EQ(tokens[file.document(1) - 1], tokenizer()->document_end());
  EXPECT_EQ(tokens.back(), tokenizer()->document_end());
  EXPECT_TRUE(decoded(settings_.output, 0, file.document(1)) == a);
  EXPECT_TRUE(decoded(settings_.output, file.document(1), file.size()) == b);
}

TEST_F(DataPrepareTest, same_bytes_twice_also_with_the_kept_tokenizer) {
  put("a.txt", prose(3, 4000)), put("b.txt", prose(4, 10));
  prepare();
  const std::string tokens = files::read_text(settings_.output),
                    model = files::read_text(folder_ / "tokens.model");
  prepare();
  EXPECT_TRUE(files::read_text(settings_.output) == tokens);
  EXPECT_TRUE(files::read_text(folder_ / "tokens.model") == model);

  settings_.tokenizer = folder_ / "tokens.model";
  settings_.train_vocabulary = 0;
  settings_.output = folder_ / "again.bin";
  prepare();
  EXPECT_TRUE(files::read_text(settings_.output) == tokens);
  EXPECT_FALSE(fs::exists(folder_ / "again.model"));
}

TEST_F(DataPrepareTest, output_in_the_input_folder_is_no_input) {
  put("a.txt", prose(5, 2000));
  settings_.output = folder_ / "text" / "tokens.bin";
  const auto first = prepare()["output"]["identity"];
  EXPECT_EQ(prepare()["output"]["identity"], first);
}

TEST_F(DataPrepareTest, validation_takes_the_end_and_does_not_shape_the_tokenizer) {
  const std::string text = prose(7, 4000);
  put("a.txt", text);
  settings_.val_fraction = 0.1;
  prepare();
  const fs::path held_out = folder_ / "tokens.val.bin";
  const auto all = [&](const fs::path& path) { return decoded(path, 0, data::TokenFile::open(path).size()); };
  const std::string train = all(settings_.output), validation = all(held_out);
  EXPECT_TRUE(train + "\n" + validation == text);
  EXPECT_NEAR(static_cast<double>(validation.size()), 0.1 * static_cast<double>(text.size()), 100);

  const std::string model = files::read_text(folder_ / "tokens.model");
  put("a.txt", text.substr(0, text.size() - 50) + std::string(50, 'Z'));
  prepare();
  EXPECT_TRUE(files::read_text(folder_ / "tokens.model") == model);
}

TEST_F(DataPrepareTest, a_tokenizer_learns_from_lines_of_json) {
  std::string lines;
  for (std::uint32_t i = 0; i < 200; ++i) lines += nlohmann::json{{"text", prose(i, 30)}}.dump() + "\n";
  put("a.jsonl", lines);
  settings_.val_fraction = 0.2;
  const auto card = prepare();
  EXPECT_EQ(card["output"]["documents"].get<int>() + card["validation"]["documents"].get<int>(), 200);
  const data::TokenFile file = data::TokenFile::open(settings_.output);
  const std::string first = decoded(settings_.output, 0, file.document(1));
  EXPECT_TRUE(first == prose(0, 30) || first == prose(1, 30)) << first;
}

TEST_F(DataPrepareTest, show_finds_the_card_of_both_files) {
  put("a.txt", prose(7, 4000));
  settings_.val_fraction = 0.1;
  settings_.pack = 64;
  const auto card = prepare();
  const auto shown = [](const fs::path& file) {
    testing::internal::CaptureStdout();
    run_show({file, true, true});
    return nlohmann::ordered_json::parse(testing::internal::GetCapturedStdout());
  };
  const auto output = shown(settings_.output), held_out = shown(folder_ / "tokens.val.bin");
  EXPECT_EQ(output["card"], card);
  EXPECT_EQ(held_out["card"], card);
  EXPECT_EQ(output["row"], 64);
  EXPECT_EQ(output["learned"], card["output"]["tokens"]);
  EXPECT_EQ(held_out["tokens"].get<int>() - held_out["learned"].get<int>(), card["validation"]["padding"]);

  fs::rename(folder_ / "tokens.val.bin", settings_.output);
  put("../tokens.bin.card.json", R"({"output": {"identity": "another file's"}})");
  EXPECT_EQ(shown(settings_.output)["card"], nullptr);
  const std::string identity = shown(settings_.output)["identity"];
  put("../tokens.bin.card.json", R"({"output": {"identity": ")" + identity + R"("}, "deep": )" +
                                     std::string(300000, '[') + std::string(300000, ']') + "}");
  EXPECT_EQ(shown(settings_.output)["card"], nullptr) << "it nests too deeply";
  // Fields of other types than they should have.
  for (const char* inputs : {R"({"a": 1})", "7", R"([{"path": 7, "bytes": "x", "xxh3_128": []}, 3])"}) {
    put("../tokens.bin.card.json",
        R"({"output": {"identity": ")" + identity + R"("}, "read": [1], "inputs": )" + inputs + "}");
    testing::internal::CaptureStdout();
    run_show({settings_.output, false, false});
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("read             [1]"));
  }
}

TEST_F(DataPrepareTest, vocabulary_that_does_not_suit) {
  put("a.txt", prose(9, 2000));
  settings_.train_vocabulary = 50000;
  EXPECT_THAT(refusal(), testing::MatchesRegex(
                             "a vocabulary of 50000 is too large for this text \\(the text yields only "
                             "[0-9]+ pieces\\). Use --train-vocabulary [0-9]+ or less, or more text\\?"));
  settings_.train_vocabulary = 265;
  EXPECT_THAT(refusal(), testing::MatchesRegex("a vocabulary of 265 is too small .* need [0-9]+\\).*"));
  settings_.train_vocabulary = 100;
  EXPECT_THAT(refusal(), HasSubstr("too small"));
  EXPECT_FALSE(fs::exists(settings_.output));
}

TEST_F(DataPrepareTest, bad_tokenizers) {
  put("a.txt", prose(10, 2000));
  settings_.train_vocabulary = 0;
  settings_.tokenizer = folder_ / "text" / "a.txt";
  EXPECT_NE(refusal(), "accepted");
  settings_.tokenizer = folder_ / "none.model";
  EXPECT_THAT(refusal(), HasSubstr("none.model"));
  settings_.tokenizer = folder_ / "text";
  settings_.tokenizer_out = folder_ / "copy";
  EXPECT_THAT(refusal(), HasSubstr("--tokenizer-out"));
  EXPECT_EQ(files::list(folder_), std::vector<std::string>{"text"}) << "nothing was written";
}

TEST(TaskOf, a_number_and_how_many) {
  EXPECT_EQ(task_of("0/1").of, 1u);
  EXPECT_EQ(task_of("7/8").number, 7u);
  for (const char* text : {"", "1", "1/", "/1", "8/8", "-1/8", "1/8x", "1 /8"})
    EXPECT_THROW(task_of(text), Error) << text;
}

}  // namespace
}  // namespace holdfast::tool
