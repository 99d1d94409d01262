#include "src/tool/data_prepare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <span>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/data/token_file.hpp"
#include "src/tool/tokenizer.hpp"

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
    options_.input = {folder_ / "text"};
    options_.output = folder_ / "tokens.bin";
    options_.train_vocabulary = 320;
  }
  ~DataPrepareTest() override { fs::remove_all(folder_); }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / "text" / name, std::ios::binary) << text;
  }
  Tokenizer tokenizer() const { return {files::read_text(folder_ / "tokens.model"), "tokens.model"}; }
  std::string decoded(const fs::path& path, std::int64_t first, std::int64_t last) const {
    const data::TokenFile file = data::TokenFile::open(path);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(last - first));
    file.copy(first, tokens);
    return tokenizer().decode(tokens);
  }
  std::string refusal() const {
    try {
      prepare(options_);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return error.what();
    }
    return "accepted";
  }

  fs::path folder_;
  PrepareOptions options_;
};

TEST_F(DataPrepareTest, tokens_decode_to_the_documents) {
  const std::string a = "  " + prose(1, 3000), b = prose(2, 500) + "last line";
  put("a.txt", a), put("b.txt", b);
  const PrepareReport report = prepare(options_);
  const data::TokenFile file = data::TokenFile::open(options_.output);
  file.verify();
  EXPECT_EQ(report.documents, 2u);
  EXPECT_EQ(report.bytes, a.size() + b.size());
  EXPECT_EQ(report.tokens, file.size());
  EXPECT_EQ(report.identity, file.identity());
  EXPECT_EQ(file.vocabulary(), 320);
  EXPECT_EQ(file.header().bytes_per_token, 2u);
  EXPECT_EQ(file.header().tokenizer, data::hash_bytes(files::read_text(folder_ / "tokens.model")));
  EXPECT_EQ(report.unknown, 0);

  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < file.size(); ++i) {
    if (file[i] == tokenizer().document_start()) starts.push_back(i);
  }
  ASSERT_EQ(starts.size(), 2u) << "one <s> before each document";
  EXPECT_EQ(starts[0], 0);
  EXPECT_TRUE(decoded(options_.output, 0, starts[1]) == a);
  EXPECT_TRUE(decoded(options_.output, starts[1], file.size()) == b);
}

TEST_F(DataPrepareTest, same_bytes_twice_also_with_the_kept_tokenizer) {
  put("a.txt", prose(3, 4000)), put("b.txt", prose(4, 10));
  prepare(options_);
  const std::string tokens = files::read_text(options_.output),
                    model = files::read_text(folder_ / "tokens.model");
  prepare(options_);
  EXPECT_TRUE(files::read_text(options_.output) == tokens);
  EXPECT_TRUE(files::read_text(folder_ / "tokens.model") == model);

  options_.tokenizer = folder_ / "tokens.model";
  options_.train_vocabulary = 0;
  options_.output = folder_ / "again.bin";
  prepare(options_);
  EXPECT_TRUE(files::read_text(options_.output) == tokens);
  EXPECT_FALSE(fs::exists(folder_ / "again.model"));
}

TEST_F(DataPrepareTest, output_in_the_input_folder_is_no_input) {
  put("a.txt", prose(5, 2000));
  options_.output = folder_ / "text" / "tokens.bin";
  const std::string first = prepare(options_).identity;
  EXPECT_EQ(prepare(options_).identity, first);
}

TEST_F(DataPrepareTest, line_by_line_is_the_whole_document_at_once) {
  const std::string text = prose(6, 2000);
  put("a.txt", text);
  prepare(options_);
  std::vector<std::int32_t> at_once;
  tokenizer().encode({text, Before::document}, at_once);
  const data::TokenFile file = data::TokenFile::open(options_.output);
  std::vector<std::int32_t> by_line(static_cast<std::size_t>(file.size()));
  file.copy(0, by_line);
  EXPECT_TRUE(by_line == at_once);
}

TEST_F(DataPrepareTest, validation_takes_the_end_and_does_not_shape_the_tokenizer) {
  const std::string text = prose(7, 4000);
  put("a.txt", text);
  options_.val_fraction = 0.1;
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.validation, folder_ / "tokens.val.bin");
  const auto all = [&](const fs::path& path) { return decoded(path, 0, data::TokenFile::open(path).size()); };
  const std::string train = all(options_.output), validation = all(report.validation);
  EXPECT_TRUE(train + "\n" + validation == text);
  EXPECT_NEAR(static_cast<double>(validation.size()), 0.1 * static_cast<double>(text.size()), 100);

  const std::string model = files::read_text(folder_ / "tokens.model");
  put("a.txt", text.substr(0, text.size() - 50) + std::string(50, 'Z'));
  prepare(options_);
  EXPECT_TRUE(files::read_text(folder_ / "tokens.model") == model);
}

TEST_F(DataPrepareTest, malformed_utf8_is_counted) {
  put("a.txt", prose(8, 2000) + "na\xEFve caf\xE9\n");
  EXPECT_EQ(prepare(options_).replaced, 2u);
}

TEST_F(DataPrepareTest, vocabulary_that_does_not_suit) {
  put("a.txt", prose(9, 2000));
  options_.train_vocabulary = 50000;
  EXPECT_THAT(refusal(), testing::MatchesRegex(
                             "a vocabulary of 50000 is too large for this text \\(the text yields only "
                             "[0-9]+ pieces\\). Use --train-vocabulary [0-9]+ or less, or more text\\?"));
  options_.train_vocabulary = 265;
  EXPECT_THAT(refusal(), testing::MatchesRegex("a vocabulary of 265 is too small .* need [0-9]+\\).*"));
  options_.train_vocabulary = 100;
  EXPECT_THAT(refusal(), HasSubstr("too small"));
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(DataPrepareTest, bad_settings) {
  EXPECT_THAT(refusal(), HasSubstr("every input is empty"));
  put("a.txt", prose(10, 2000));
  options_.output = folder_ / "none" / "tokens.bin";
  EXPECT_THAT(refusal(), HasSubstr("cannot write"));
  options_.output = folder_;
  EXPECT_THAT(refusal(), HasSubstr("cannot write"));
  options_.output = folder_ / "tokens.bin";
  options_.val_fraction = 1;
  EXPECT_THAT(refusal(), HasSubstr("--val-fraction"));
  options_.val_fraction = 1e-9;
  EXPECT_THAT(refusal(), HasSubstr("no text is left for validation"));
  options_.val_fraction = 0;
  options_.tokenizer = folder_ / "text" / "a.txt";
  EXPECT_THAT(refusal(), HasSubstr("exactly one of"));
  options_.train_vocabulary = 0;
  EXPECT_THAT(refusal(), HasSubstr("not a SentencePiece model"));
  options_.tokenizer = folder_ / "none.model";
  EXPECT_THAT(refusal(), HasSubstr("none.model"));
  EXPECT_EQ(files::list(folder_), std::vector<std::string>{"text"}) << "nothing was written";
}

}  // namespace
}  // namespace holdfast::tool
