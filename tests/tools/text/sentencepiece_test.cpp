#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/sentencepiece_json.hpp"
#include "src/tools/text/sentencepiece_tokenizer.hpp"
#include "src/tools/text/train_sentencepiece.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string sources() {
  std::string text;
  for (const char* name : {"error.cpp", "files.cpp", "run_dir.cpp", "error.hpp"})
    text += files::read_text(std::filesystem::path(HOLDFAST_SOURCE_DIR) / "src/base" / name);
  return text;
}

std::function<bool(std::string&)> lines_of(const std::string& text) {
  return [stream = std::make_shared<std::istringstream>(text)](std::string& line) {
    return static_cast<bool>(std::getline(*stream, line));
  };
}

class Iterator final : public sentencepiece::SentenceIterator {
 public:
  explicit Iterator(const std::string& text) : next_(lines_of(text)) { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::function<bool(std::string&)> next_;
  std::string line_;
  bool done_ = false;
};

/// Llama 2's settings, but for `changes`.
std::string model_of(std::unordered_map<std::string, std::string> changes) {
  changes.insert({{"model_type", "bpe"},
                  {"vocab_size", "600"},
                  {"character_coverage", "0.98"},
                  {"byte_fallback", "true"},
                  {"normalization_rule_name", "identity"},
                  {"remove_extra_whitespaces", "false"},
                  {"allow_whitespace_only_pieces", "true"},
                  {"num_threads", "1"},
                  {"minloglevel", "2"}});
  Iterator text(sources());
  std::string model;
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(changes, &text, &model).ok());
  return model;
}

/// Text of what is in the model and what is not.
std::string mixture(std::mt19937& random, std::size_t words) {
  const std::string pool[] = {"return ",
                              "  ",
                              "\n",
                              "std::string",
                              "<s>",
                              "</s>",
                              "<mask>",
                              "==",
                              "=",
                              "\xE2\x96\x81",
                              "caf\xC3\xA9",
                              "\xE4\xB8\xAD\xE6\x96\x87",
                              "\xF0\x9F\x98\x80",
                              "123",
                              "\t",
                              "\r\n",
                              "e\xCC\x81",
                              "<0x0A>",
                              "x",
                              "(",
                              ");",
                              std::string(1, '\0')};
  const std::string code = sources();
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    const std::size_t at = random() % (code.size() - 40);
    text += random() % 3 == 0 ? code.substr(at, random() % 40) : pool[random() % std::size(pool)];
  }
  return text;
}

std::vector<Token> encoded(const Tokenizer& tokenizer, std::string_view text,
                           Specials specials = Specials::as_text) {
  std::vector<Token> ids;
  tokenizer.encode(text, ids, specials);
  return ids;
}

class Models : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Models, GiveTheIdsOfTheWholeText) {
  const std::string model = model_of({{GetParam().first, GetParam().second}});
  const SentencePieceTokenizer tokenizer(model, "x");
  sentencepiece::SentencePieceProcessor theirs;
  ASSERT_TRUE(theirs.LoadFromSerializedProto(model).ok());
  EXPECT_EQ(tokenizer.vocabulary(), theirs.GetPieceSize());
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::string text = mixture(random, round == 0 ? 5000 : random() % 12);
    if (!utf8::valid(text)) continue;  // cut inside a character
    const std::vector<Token> ids = encoded(tokenizer, text);
    ASSERT_EQ(ids, theirs.EncodeAsIds(text)) << text;
    EXPECT_EQ(tokenizer.decode(ids, false), theirs.DecodeIds(ids)) << text;
    std::vector<Token> again;
    std::vector<std::size_t> begins;
    tokenizer.encode_template_at(text, {}, again, begins);
    EXPECT_EQ(again, ids);
    ASSERT_EQ(begins.size(), ids.size());
    EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end()));
    EXPECT_TRUE(begins.empty() || begins.back() <= text.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Models,
    testing::Values(std::pair("hard_vocab_limit", "true"),
                    std::pair("user_defined_symbols", "<mask>,==,return"),
                    std::pair("add_dummy_prefix", "false"), std::pair("user_defined_symbols", "= ="),
                    std::pair("normalization_rule_name", "nmt_nfkc"), std::pair("byte_fallback", "false"),
                    std::pair("remove_extra_whitespaces", "true"), std::pair("model_type", "unigram"),
                    std::pair("treat_whitespace_as_suffix", "true"),
                    std::pair("split_by_whitespace", "false")));

/// Ids as the rules of a tokenizer.json for BPE with byte fallback give them: of the pairs that stand beside
/// each other, the one whose merge comes first in the list is joined, the leftmost first.
std::vector<Token> encoded_by_json(const nlohmann::json& rules, std::string text) {
  const auto& model = rules["model"];
  std::map<std::string, int> ranks;
  for (const auto& merge : model["merges"]) ranks.emplace(merge, static_cast<int>(ranks.size()));
  const std::string space = "\xE2\x96\x81";
  std::string spaced = rules["normalizer"]["type"] == "Sequence" && !text.empty() ? space : "";
  for (const char c : text) spaced += c == ' ' ? space : std::string(1, c);
  std::vector<std::string> parts;
  for (std::size_t at = 0, end = 0; at < spaced.size(); at = end) {
    for (end = at + 1; end < spaced.size() && utf8::continues(spaced[end]);) ++end;
    const std::string character = spaced.substr(at, end - at);
    if (model["vocab"].contains(character)) {
      parts.push_back(character);
      continue;
    }
    for (const char byte : character)
      parts.push_back(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
  }
  while (true) {
    std::size_t best = parts.size();
    int rank = INT_MAX;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (const auto found = ranks.find(parts[i] + " " + parts[i + 1]);
          found != ranks.end() && found->second < rank) {
        best = i;
        rank = found->second;
      }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<Token> out;
  for (const std::string& part : parts) out.push_back(model["vocab"][part]);
  return out;
}

TEST(SentencePiece, AsHuggingFacesFilesItGivesTheSameIds) {
  std::mt19937 random(5);
  for (const char* dummy : {"true", "false"}) {
    const std::string model = model_of({{"add_dummy_prefix", dummy}});
    const SentencePieceTokenizer tokenizer(model, "x");
    const auto files = hf_files_of_sentencepiece(model, "x", 64);
    ASSERT_TRUE(files);
    EXPECT_EQ(files->begins, 1);
    EXPECT_EQ(files->ends, 2);
    const auto rules = nlohmann::json::parse(files->tokenizer), config = nlohmann::json::parse(files->config);
    EXPECT_EQ(config["bos_token"], "<s>");
    EXPECT_EQ(config["eos_token"], "</s>");
    EXPECT_EQ(config["model_max_length"], 64);
    EXPECT_EQ(rules["post_processor"]["special_tokens"]["<s>"]["ids"], nlohmann::json({1}));
    for (int round = 0; round < 100; ++round) {
      const std::string text = mixture(random, random() % 12);
      if (!utf8::valid(text)) continue;
      ASSERT_EQ(encoded_by_json(rules, text), encoded(tokenizer, text)) << text;
    }
  }
}

TEST(SentencePiece, WhatTokenizerJsonCannotSayIsNotSaid) {
  for (const auto& [key, value] : {std::pair("user_defined_symbols", "<mask>"),
                                   {"normalization_rule_name", "nmt_nfkc"},
                                   {"byte_fallback", "false"},
                                   {"model_type", "unigram"},
                                   {"treat_whitespace_as_suffix", "true"}})
    EXPECT_FALSE(hf_files_of_sentencepiece(model_of({{key, value}}), "x", {})) << key;
  EXPECT_THROW(hf_files_of_sentencepiece("rubbish", "x", {}), Error);
}

TEST(SentencePiece, AModelOfOnesOwnIsFoundWhereItIsTheOnlyOne) {
  const test::Scratch scratch;
  const std::filesystem::path folder = scratch.path();
  EXPECT_FALSE(find_own_model(folder));
  scratch.write("tokens.model", "x");
  EXPECT_EQ(find_own_model(folder), folder / "tokens.model");
  EXPECT_EQ(find_own_model(folder / "tokens.model"), folder / "tokens.model");
  scratch.write("other.model", "x");
  EXPECT_FALSE(find_own_model(folder));
  EXPECT_EQ(find_own_model(folder / "other.model"), folder / "other.model");
  std::filesystem::remove(folder / "other.model");
  scratch.write("tokenizer.json", "{}");
  EXPECT_FALSE(find_own_model(folder));
  EXPECT_FALSE(find_own_model(folder / "absent.model"));
}

TEST(SentencePiece, ParsesControlPiecesOnlyWhereItShould) {
  const SentencePieceTokenizer tokenizer(model_of({}), "x");
  EXPECT_EQ(tokenizer.find("<s>"), 1);
  EXPECT_EQ(tokenizer.document_start(), 1);
  EXPECT_EQ(tokenizer.document_end(), 2);
  EXPECT_EQ(tokenizer.unknown(), 0);
  EXPECT_EQ(tokenizer.find("no such piece"), std::nullopt);
  const std::string text = "<s>x</s><s>";
  EXPECT_THAT(encoded(tokenizer, text), testing::Not(testing::Contains(1)));
  std::vector<Token> expected = {1};
  tokenizer.encode("x", expected, Specials::as_text);
  expected.insert(expected.end(), {2, 1});
  EXPECT_EQ(encoded(tokenizer, text, Specials::parsed), expected);
  std::vector<Token> ids;
  std::vector<std::size_t> begins;
  const std::pair<std::size_t, std::size_t> own[] = {{0, 3}, {4, 7}, {8, 11}};
  tokenizer.encode_template_at(text, own, ids, begins);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 0);  // its range lacks a byte
  EXPECT_EQ(begins.back(), 8u);
  EXPECT_EQ(tokenizer.decode(ids, false), "x</s>");
  EXPECT_EQ(tokenizer.decode(ids, true), "<s>x</s><s>");
}

TEST(SentencePiece, DecodesBytesThatAreNoWholeCharacter) {
  const SentencePieceTokenizer tokenizer(model_of({}), "x");
  EXPECT_EQ(tokenizer.decode(std::vector{*tokenizer.find("<0xF0>")}, false), "\xF0");
}

TEST(SentencePiece, LongTextsTakeNoQuadraticTime) {
  const SentencePieceTokenizer tokenizer(model_of({}), "x");
  const std::string text(1'000'000, '=');
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text), false), text);
}

TEST(SentencePiece, DamagedModelsAreErrorsOrModels) {
  const std::string model = model_of({});
  EXPECT_THROW(SentencePieceTokenizer("", "x"), Error);
  EXPECT_THROW(SentencePieceTokenizer("not a model", "x"), Error);
  for (std::size_t cut = 1; cut < model.size(); cut += 97) {
    try {
      encoded(SentencePieceTokenizer(std::string_view(model).substr(0, cut), "x"), "return 1;");
    } catch (const Error&) {
    }
  }
}

TEST(TrainSentencePiece, TheSameTextGivesTheSameModel) {
  const std::string text = sources();
  const std::string model = train_sentencepiece(400, text.size(), lines_of(text));
  EXPECT_EQ(model, train_sentencepiece(400, text.size(), lines_of(text)));
  const SentencePieceTokenizer tokenizer(model, "x");
  EXPECT_EQ(tokenizer.vocabulary(), 400);
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text), false), text);
}

TEST(TrainSentencePiece, SaysWhichVocabularyWouldDo) {
  for (const auto& [vocabulary, word] :
       {std::pair(100, "too small"), std::pair(260, "too small"), std::pair(100000, "too large")}) {
    try {
      train_sentencepiece(vocabulary, 100, lines_of(sources()));
      ADD_FAILURE() << vocabulary;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(word));
      EXPECT_EQ(error.exit(), Exit::usage);
    }
  }
  EXPECT_THROW(train_sentencepiece(
                   400, 100, [](std::string&) -> bool { throw Error(Exit::runtime, "the disk is gone"); }),
               Error);
}

class Open : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "open_tokenizer_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string refusal(const std::filesystem::path& path) {
    try {
      open_tokenizer(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return error.what();
    }
    return "accepted";
  }
  std::filesystem::path folder_;
};

TEST_F(Open, KnowsFilesAndFolders) {
  EXPECT_THAT(refusal(folder_), HasSubstr("has no tokenizer.json, no tokenizer.model"));
  EXPECT_THAT(refusal(folder_ / "missing.model"), HasSubstr("No such file"));
  const std::string model = model_of({});
  std::ofstream(folder_ / "tokenizer.model", std::ios::binary) << model;
  EXPECT_EQ(open_tokenizer(folder_)->vocabulary(), 600);
  EXPECT_EQ(open_tokenizer(folder_ / "tokenizer.model")->identity(), data::hash_bytes(model));
  std::filesystem::copy(
      std::filesystem::path(HOLDFAST_SOURCE_DIR) / "tests/tools/text/golden/qwen/tokenizer.json", folder_);
  std::ofstream(folder_ / "tokenizer_config.json") << R"({"bos_token": null, "eos_token": "<|im_end|>"})";
  const auto json = open_tokenizer(folder_);
  EXPECT_EQ(json->document_end(), json->find("<|endoftext|>"));
  EXPECT_EQ(json->identity(), data::hash_bytes(files::read_text(folder_ / "tokenizer.json")));
  std::ofstream(folder_ / "tokenizer_config.json") << "{";
  EXPECT_THAT(refusal(folder_), HasSubstr("tokenizer_config.json"));
}

TEST_F(Open, SaysWhatToDoWithTheTokenizerJsonOfLlama2) {
  std::ofstream(folder_ / "tokenizer.json")
      << R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}]},
             "pre_tokenizer": null, "model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})";
  EXPECT_THAT(refusal(folder_), testing::AllOf(HasSubstr("Prepend"), HasSubstr("tokenizer.model")));
}

TEST_F(Open, TokenizerModelStandsInWhereItHasAllTokens) {
  std::ofstream(folder_ / "tokenizer.model", std::ios::binary) << model_of({});
  const auto write = [&](const std::string& added) {
    std::ofstream(folder_ / "tokenizer.json")
        << R"({"pre_tokenizer": null, "model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": [)"
        << added << "]}";
  };
  write(R"({"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"})");
  EXPECT_EQ(open_tokenizer(folder_)->vocabulary(), 600);
  write(R"({"id": 1, "content": "<s>"}, {"id": 600, "content": "<|user|>"})");
  EXPECT_THAT(refusal(folder_), HasSubstr("ByteLevel"));
  write(R"({"id": 2, "content": "<s>"})");
  EXPECT_THAT(refusal(folder_), HasSubstr("ByteLevel"));
}

}  // namespace
}  // namespace holdfast::text
