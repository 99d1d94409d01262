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

TEST_F(Open, SaysWhatToDoWithTheTokenizerJsonOfLlama2Alone) {
  std::ofstream(folder_ / "tokenizer.json")
      << R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}]},
             "pre_tokenizer": null, "model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})";
  EXPECT_THAT(refusal(folder_), testing::AllOf(HasSubstr("Prepend"), HasSubstr("tokenizer.model")));
}

/// The texts of a tokenizer.json as transformers 4 writes it for a model of Llama's kind, with this rule for
/// the first space; `more` are added tokens beside the model's own.
std::string llama_json(const std::string& model, const nlohmann::json& normalizer, const nlohmann::json& cuts,
                       const nlohmann::json& more = nlohmann::json::array()) {
  auto document = nlohmann::json::parse(hf_files_of_sentencepiece(model, "x", {})->tokenizer);
  document["normalizer"] = normalizer;
  document["pre_tokenizer"] = cuts;
  for (const auto& token : more) document["added_tokens"].push_back(token);
  return document.dump();
}
nlohmann::json metaspace(const char* scheme) {
  return {
      {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", scheme}, {"split", false}};
}
nlohmann::json replaced() {
  return {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}};
}
nlohmann::json prepended() {
  return {{"type", "Sequence"},
          {"normalizers", {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}}, replaced()}}};
}
nlohmann::json added(int id, const std::string& content, bool special = true) {
  return {{"id", id},        {"content", content},  {"special", special},  {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"single_word", false}};
}

/// A model, and what lies beside it; what is expected was compared with transformers 4.57 and 5.24
/// (scripts/proof/tokenizers.sh).
class OpenBeside : public Open {
 protected:
  static constexpr const char* im_end = "<|im_end|>";
  static constexpr const char* im_start = "<|im_start|>";

  void SetUp() override {
    Open::SetUp();
    put("tokenizer.model", model_);
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  /// The model's ids of a text that stands for itself, with or without a space before it.
  std::vector<Token> part(std::string_view text, bool spaced) const {
    return spaced ? encoded(spaced_, text) : encoded_by_json(bare_, std::string(text));
  }
  std::vector<Token> joined(const std::vector<std::vector<Token>>& parts) const {
    std::vector<Token> all;
    for (const auto& ids : parts) all.insert(all.end(), ids.begin(), ids.end());
    return all;
  }
  std::vector<Token> parsed(const std::string& text) const {
    return encoded(*open_tokenizer(folder_), text, Specials::parsed);
  }

  const std::string model_ = model_of({});
  const SentencePieceTokenizer spaced_{model_, "x"};
  const nlohmann::json bare_ = nlohmann::json::parse(llama_json(model_, replaced(), {}));
};

TEST_F(OpenBeside, AddedTokensHaveTheirNumbers) {
  const std::string decoder = R"("added_tokens_decoder": {"1": {"content": "<s>", "special": true},
      "601": {"content": "<|im_start|>", "special": false}, "600": {"content": "<|im_end|>", "special": true}})";
  const std::string names =
      R"("tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "<|im_end|>")";
  const std::string json = R"({"<|im_start|>": 601, "<|im_end|>": 600})";
  for (const auto& [config, added] : {std::pair("{" + names + "}", json),
                                      {"{" + names + ", " + decoder + "}", ""},
                                      {"{" + names + ", " + decoder + "}", json}}) {
    put("tokenizer_config.json", config);
    std::filesystem::remove(folder_ / "added_tokens.json");
    if (!added.empty()) put("added_tokens.json", added);
    const auto tokenizer = open_tokenizer(folder_);
    EXPECT_EQ(tokenizer->vocabulary(), 602);
    EXPECT_EQ(tokenizer->find(im_start), 601);
    EXPECT_EQ(tokenizer->find(im_end), 600);
    EXPECT_EQ(tokenizer->document_start(), 1);
    EXPECT_EQ(tokenizer->document_end(), 600);
    EXPECT_EQ(parsed("<|im_start|>user\n<|im_end|>"), joined({{601}, part("user\n", true), {600}}));
    // In a text of unknown origin only what is not special is a token.
    const auto ids = encoded(*tokenizer, "<|im_start|>user<|im_end|>");
    EXPECT_EQ(ids, joined({{601}, part("user<|im_end|>", true)}));
    EXPECT_EQ(tokenizer->decode(ids, false), "<|im_start|> user<|im_end|>");
    EXPECT_EQ(tokenizer->decode(std::vector<Token>{600, 601}, false), im_start);
    EXPECT_EQ(tokenizer->decode(std::vector<Token>{600, 601}, true), std::string(im_end) + im_start);
  }
}

TEST_F(OpenBeside, NamedTokensThatTheModelDoesNotHaveAreTheNext) {
  put("special_tokens_map.json",
      R"({"pad_token": {"content": "<pad>", "lstrip": false}, "unk_token": "<unk>",
          "additional_special_tokens": ["<|im_end|>"]})");
  const auto tokenizer = open_tokenizer(folder_);
  EXPECT_EQ(tokenizer->find("<pad>"), 600);
  EXPECT_EQ(tokenizer->find(im_end), 601);
  EXPECT_EQ(tokenizer->vocabulary(), 602);
  EXPECT_EQ(open_tokenizer(folder_ / "tokenizer.model")->vocabulary(), 602) << "named as a file, too";
}

TEST_F(OpenBeside, FilesThatContradictEachOtherAreRefused) {
  put("added_tokens.json", R"({"<|im_end|>": 700})");
  EXPECT_THAT(refusal(folder_),
              testing::AllOf(HasSubstr("'<|im_end|>' has number 700 in"),
                             HasSubstr("added_tokens.json, where the next free number is 600")));
  put("added_tokens.json", R"({"<s>": 600})");
  EXPECT_THAT(refusal(folder_), HasSubstr("and number 1 in the tokenizer"));
  put("added_tokens.json", R"({"<|im_end|>": 600})");
  put("tokenizer_config.json", R"({"added_tokens_decoder": {"600": {"content": "<|im_start|>"}}})");
  EXPECT_THAT(refusal(folder_), HasSubstr("added_tokens.json says that token 600 is '<|im_end|>'"));
  std::filesystem::remove(folder_ / "added_tokens.json");
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    put("tokenizer_config.json",
        fmt::format(R"({{"added_tokens_decoder": {{"600": {{"content": "<x>", "{}": true}}}}}})", key));
    EXPECT_THAT(refusal(folder_), HasSubstr(fmt::format("{} of token <x> is not supported", key)));
  }
  put("tokenizer_config.json", "{");
  EXPECT_THAT(refusal(folder_), HasSubstr("tokenizer_config.json"));
}

TEST_F(OpenBeside, TheFirstSpaceIsWhereTransformersPutsIt) {
  const std::string text = "<s>user </s>if";
  const auto rules = [&](const std::string& keys) {
    put("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", )" + keys + "}");
  };
  const auto spaced = joined({{1}, part("user ", true), {2}, part("if", true)}),
             bare = joined({{1}, part("user ", false), {2}, part("if", false)});
  ASSERT_NE(spaced, bare);
  rules(R"("bos_token": "<s>")");
  EXPECT_EQ(parsed(text), spaced);
  EXPECT_EQ(parsed(" if"), part("  if", false));
  rules(R"("legacy": true)");
  EXPECT_EQ(parsed(text), spaced);
  rules(R"("legacy": false)");
  EXPECT_EQ(parsed(text), bare);
  EXPECT_EQ(parsed("if</s>if"), joined({part("if", true), {2}, part("if", false)}));
  EXPECT_EQ(parsed(" if"), part(" if", false)) << "there is one already";
  EXPECT_EQ(open_tokenizer(folder_)->decode(part("if", true), false), "if");
  rules(R"("legacy": false, "add_prefix_space": false)");
  EXPECT_EQ(parsed("if</s>if"), joined({part("if", false), {2}, part("if", false)}));
  // tokenizer.json is what transformers reads first.
  for (const auto& [normalizer, cuts, expected] : {std::tuple(prepended(), nlohmann::json(), spaced),
                                                   {nlohmann::json(), metaspace("first"), bare},
                                                   {nlohmann::json(), metaspace("never"), bare},
                                                   {replaced(), nlohmann::json(), bare}}) {
    put("tokenizer.json", llama_json(model_, normalizer, cuts));
    EXPECT_EQ(parsed(text), expected) << cuts;
  }
  EXPECT_EQ(parsed("if"), part("if", false));
  put("tokenizer.model", model_of({{"model_type", "unigram"}}));
  std::filesystem::remove(folder_ / "tokenizer.json");
  EXPECT_THAT(refusal(folder_), HasSubstr("add_prefix_space"));
}

TEST_F(OpenBeside, DocumentsBeginAsTheConfigSays) {
  put("tokenizer_config.json", R"({"add_bos_token": false, "eos_token": "</s>"})");
  EXPECT_EQ(open_tokenizer(folder_)->document_start(), std::nullopt);
  EXPECT_EQ(open_tokenizer(folder_)->document_end(), 2);
}

TEST_F(OpenBeside, ATokenizerJsonOfLlamasKindGoesWithTheModel) {
  put("tokenizer.json", llama_json(model_, prepended(), {},
                                   nlohmann::json::array({added(600, im_end), added(601, im_start, false)})));
  EXPECT_EQ(open_tokenizer(folder_)->find(im_start), 601);
  EXPECT_EQ(open_tokenizer(folder_)->identity(), data::hash_bytes(model_));
  put("added_tokens.json", R"({"<tool>": 602})");
  EXPECT_EQ(open_tokenizer(folder_)->vocabulary(), 603) << "transformers reads both";
  put("tokenizer.json", llama_json(model_, prepended(), {}, nlohmann::json::array({added(600, im_end)})));
  EXPECT_THAT(refusal(folder_), HasSubstr("'<tool>' has number 602"));
  std::filesystem::remove(folder_ / "added_tokens.json");
  put("tokenizer.json", llama_json(model_, prepended(), {}, nlohmann::json::array({added(2, "<s>")})));
  EXPECT_THAT(refusal(folder_), HasSubstr("'<s>' has number 2"));
  put("tokenizer.json", llama_json(model_of({{"vocab_size", "590"}}), prepended(), {}));
  EXPECT_THAT(refusal(folder_), HasSubstr("it has 590 pieces, and tokenizer.model beside it has 600"));
  auto other = nlohmann::json::parse(llama_json(model_, prepended(), {}));
  std::swap(other["model"]["vocab"]["a"], other["model"]["vocab"]["b"]);
  put("tokenizer.json", other.dump());
  EXPECT_THAT(refusal(folder_), HasSubstr("and tokenizer.model beside it has not"));
  put("tokenizer.json", llama_json(model_, {}, {{"type", "Whitespace"}}));
  EXPECT_THAT(refusal(folder_), HasSubstr("Whitespace"));
  EXPECT_EQ(open_tokenizer(folder_ / "tokenizer.model")->vocabulary(), 600) << "named as a file";
}

TEST_F(Open, SaysHowHalvesOfATokenizerBecomeOne) {
  std::ofstream(folder_ / "vocab.json") << "{}";
  std::ofstream(folder_ / "merges.txt") << "";
  EXPECT_THAT(refusal(folder_), HasSubstr("save_pretrained"));
}

}  // namespace
}  // namespace holdfast::text
