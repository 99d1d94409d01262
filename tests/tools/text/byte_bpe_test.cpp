// The goldens come from Hugging Face `tokenizers` (scripts/proof/tokenizers_compared.py golden).
#include "src/tools/text/byte_bpe.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(HOLDFAST_SOURCE_DIR) / "tests/tools/text/golden" / name;
}
std::vector<Token> ids_of(const std::filesystem::path& path) {
  std::istringstream text(files::read_text(path));
  return {std::istream_iterator<Token>(text), {}};
}
std::unique_ptr<ByteBpe> from(const std::string& text, const DocumentTokens& documents = {}) {
  return std::make_unique<ByteBpe>(read_byte_bpe(text, "x.json"), documents, data::hash_bytes(text));
}
json llama3() { return json::parse(files::read_text(golden("llama3/tokenizer.json"))); }

std::vector<Token> encoded(const Tokenizer& tokenizer, std::string_view text,
                           Specials specials = Specials::as_text) {
  std::vector<Token> ids;
  tokenizer.encode(text, ids, specials);
  return ids;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, GivesTheirIds) {
  const auto tokenizer = open_tokenizer(golden(GetParam()));
  const std::string text = files::read_text(golden(GetParam()) / "text");
  const std::vector<Token> as_text = ids_of(golden(GetParam()) / "as_text"),
                           parsed = ids_of(golden(GetParam()) / "parsed");
  ASSERT_GT(as_text.size(), 1000u);
  ASSERT_NE(as_text, parsed);
  EXPECT_EQ(encoded(*tokenizer, text), as_text);
  EXPECT_EQ(encoded(*tokenizer, text, Specials::parsed), parsed);
  EXPECT_EQ(encoded(*tokenizer, text), as_text) << "with what the cache kept";
}

TEST_P(Golden, DecodesWhatItEncoded) {
  const auto tokenizer = open_tokenizer(golden(GetParam()));
  const std::string text = files::read_text(golden(GetParam()) / "text");
  const std::string back = tokenizer->decode(encoded(*tokenizer, text), true);
  if (std::string(GetParam()) != "qwen") {
    EXPECT_EQ(back, text);
  }  // whose normaliser rewrites it
  EXPECT_EQ(encoded(*tokenizer, back), encoded(*tokenizer, text));
}

TEST_P(Golden, SaysWhereTokensBegin) {
  const auto tokenizer = open_tokenizer(golden(GetParam()));
  const std::string text = files::read_text(golden(GetParam()) / "text");
  const std::pair<std::size_t, std::size_t> all[] = {{0, text.size()}};
  std::vector<Token> ids;
  std::vector<std::size_t> begins;
  tokenizer->encode_template_at(text, all, ids, begins);
  EXPECT_EQ(ids, encoded(*tokenizer, text, Specials::parsed));
  ASSERT_EQ(ids.size(), begins.size());
  EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = tokenizer->decode(std::span(&ids[i], 1), true);
    if (std::string(GetParam()) != "qwen") {
      EXPECT_EQ(text.substr(begins[i], piece.size()), piece) << i;
    }
  }
}

TEST_P(Golden, IsTheSameInManyThreads) {
  const auto tokenizer = open_tokenizer(golden(GetParam()));
  const std::string text = files::read_text(golden(GetParam()) / "text");
  const std::vector<Token> expected = ids_of(golden(GetParam()) / "parsed");
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round)
        wrong[i] += encoded(*tokenizer, text, Specials::parsed) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Golden, testing::Values("llama3", "qwen", "gpt2"),
                         [](const auto& one) { return one.param; });

TEST(ByteBpe, ParsesSpecialTokensOnlyWhereItShould) {
  const auto tokenizer = open_tokenizer(golden("llama3"));
  const Token special = *tokenizer->find("<|eot_id|>");
  const std::string text = "say <|eot_id|> then <|eot_id|><|eot_id|>";
  const std::size_t second = text.find("<|", 10);
  const std::pair<std::size_t, std::size_t> own[] = {
      {0, 3}, {second, second + 10}, {second + 10, second + 19}};
  std::vector<Token> ids;
  tokenizer->encode_template(text, own, ids);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), special), 1);  // the last range lacks a byte
  const std::string back = tokenizer->decode(ids, true);
  EXPECT_EQ(back, text);
  EXPECT_EQ(tokenizer->decode(ids, false), "say <|eot_id|> then <|eot_id|>");
}

TEST(ByteBpe, WordsReachAcrossTheRangesOfATemplate) {
  const auto tokenizer = open_tokenizer(golden("llama3"));
  const std::string text = "\nassert";
  const std::pair<std::size_t, std::size_t> own[] = {{0, 3}};
  std::vector<Token> ids;
  tokenizer->encode_template(text, own, ids);
  EXPECT_EQ(ids, encoded(*tokenizer, text));
}

TEST(ByteBpe, AddedTokensThatAreNotSpecialAreAlwaysParsed) {
  const auto tokenizer = open_tokenizer(golden("qwen"));
  EXPECT_THAT(encoded(*tokenizer, "<tool_call><|im_end|>"),
              testing::Contains(*tokenizer->find("<tool_call>")));
  EXPECT_THAT(encoded(*tokenizer, "<tool_call><|im_end|>"),
              testing::Not(testing::Contains(*tokenizer->find("<|im_end|>"))));
}

TEST(ByteBpe, LongWordsTakeNoQuadraticTime) {
  const auto tokenizer = open_tokenizer(golden("llama3"));
  for (const std::string& unit :
       {std::string("a"), std::string(" "), std::string("\n"), std::string("abcxyz")}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text), false), text);
  }
}

TEST(ByteBpe, PutsASpaceBeforeATextThatHasNone) {
  json document = json::parse(files::read_text(golden("gpt2/tokenizer.json")));
  document["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = from(document.dump());
  const auto plain = open_tokenizer(golden("gpt2"));
  EXPECT_EQ(encoded(*tokenizer, "return x"), encoded(*plain, " return x"));
  EXPECT_EQ(encoded(*tokenizer, " return x"), encoded(*plain, " return x"));
  std::vector<Token> ids;
  std::vector<std::size_t> begins;
  tokenizer->encode_template_at("(x)", {}, ids, begins);
  EXPECT_EQ(begins.front(), 0u);
  EXPECT_EQ(begins.back(), 2u);
}

TEST(ByteBpe, CutsAsSplitSays) {
  json document = llama3();
  auto& split = document["pre_tokenizer"]["pretokenizers"][0];
  split["pattern"] = {{"String", "-"}};
  split["behavior"] = "Removed";
  const auto removed = from(document.dump());
  EXPECT_EQ(removed->decode(encoded(*removed, "a-b--c"), false), "abc");
  split["invert"] = true;
  const auto kept = from(document.dump());
  EXPECT_EQ(kept->decode(encoded(*kept, "a-b--c"), false), "---");
  split = {{"type", "Digits"}, {"individual_digits", true}};
  const auto digits = from(document.dump());
  EXPECT_EQ(encoded(*digits, "123").size(), 3u);
}

TEST(ByteBpe, NamesWhatBeginsAndEndsADocument) {
  const auto beside = [](std::map<std::string, std::string> named) {
    Beside all;
    all.configured = true;
    all.named = std::move(named);
    return all;
  };
  const DocumentTokens instruct = document_tokens(
      beside({{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eot_id|>"}}), "<|begin_of_text|>");
  const auto tokenizer = from(llama3().dump(), instruct);
  EXPECT_EQ(tokenizer->document_start(), tokenizer->find("<|begin_of_text|>"));
  EXPECT_EQ(tokenizer->document_end(), tokenizer->find("<|end_of_text|>")) << "and not the end of a turn";
  const auto plain = from(llama3().dump(), document_tokens({}, std::nullopt));
  EXPECT_EQ(plain->document_start(), plain->find("<|begin_of_text|>"));
  // A token that is named and never put before a text begins none.
  using Start = std::vector<std::string>;
  const auto start_of = [&](std::optional<bool> add, const std::string& kind,
                            std::optional<std::string> begins) {
    Beside all = beside({{"bos_token", "<s>"}});
    all.add_bos_token = add;
    all.tokenizer_class = kind;
    return document_tokens(all, begins).start;
  };
  EXPECT_EQ(start_of({}, "", {}), Start());
  EXPECT_EQ(start_of(true, "", {}), Start({"<s>"}));
  EXPECT_EQ(start_of({}, "LlamaTokenizerFast", {}), Start({"<s>"}));
  EXPECT_EQ(start_of(false, "", "<s>"), Start());
  EXPECT_EQ(document_tokens(beside({}), "<s>").start, Start({"<s>"}));
  const auto qwen = from(files::read_text(golden("qwen/tokenizer.json")),
                         document_tokens(beside({{"eos_token", "<|im_end|>"}}), std::nullopt));
  EXPECT_EQ(qwen->document_start(), std::nullopt);
  EXPECT_EQ(qwen->document_end(), qwen->find("<|endoftext|>"));
  json document = llama3();
  document["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<|eot_id|>"}, {"type_id", 0}}}}}}}}}};
  EXPECT_EQ(read_byte_bpe(document.dump(), "x").begins, "<|eot_id|>");
}

/// What is expected was compared with transformers 4.57 and 5.24.
class BesideFiles : public testing::Test {
 protected:
  BesideFiles() { put("tokenizer.json", files::read_text(golden("qwen/tokenizer.json"))); }
  void put(const std::string& name, const std::string& text) const { scratch_.write(name, text); }
  std::unique_ptr<Tokenizer> open() const { return open_tokenizer(scratch_.path()); }
  std::string refusal() const {
    const auto refusal = test::refusal_of([&] { open(); });
    EXPECT_EQ(refusal.exit, Exit::usage);
    return refusal.text;
  }
  const test::Scratch scratch_;
  const int known_ = open_tokenizer(golden("qwen"))->vocabulary();
};

TEST_F(BesideFiles, WhatOtherFilesDeclareAreTokens) {
  const std::string id = std::to_string(known_);
  for (const auto& [name, text] : {
           std::pair<std::string, std::string>("added_tokens.json", R"({"<|tool|>": )" + id + "}"),
           {"tokenizer_config.json",
            R"({"added_tokens_decoder": {")" + id + R"(": {"content": "<|tool|>", "special": true}}})"},
           {"special_tokens_map.json", R"({"additional_special_tokens": ["<|tool|>"]})"},
           {"tokenizer_config.json", R"({"additional_special_tokens": [{"content": "<|tool|>"}]})"},
           {"tokenizer_config.json", R"({"extra_special_tokens": {"tool_token": "<|tool|>"}})"},
           {"tokenizer_config.json", R"({"eos_token": "<|tool|>"})"},
       }) {
    put(name, text);
    const auto tokenizer = open();
    EXPECT_EQ(tokenizer->vocabulary(), known_ + 1) << text;
    EXPECT_THAT(encoded(*tokenizer, "a<|tool|>", Specials::parsed), testing::Contains(known_)) << text;
    const bool special = name != "added_tokens.json";
    EXPECT_EQ(encoded(*tokenizer, "a<|tool|>").back() == known_, !special) << text;
    std::filesystem::remove(scratch_.path() / name);
  }
}

TEST_F(BesideFiles, WhatTheyContradictIsRefused) {
  put("added_tokens.json", R"({"<|tool|>": 999999})");
  EXPECT_THAT(refusal(), HasSubstr("'<|tool|>' has number 999999 in"));
  put("added_tokens.json", R"({"<|im_end|>": 5})");
  EXPECT_THAT(refusal(), HasSubstr("'<|im_end|>' has number 5 in"));
  put("added_tokens.json", "{}");
  put("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>", "rstrip": true}})");
  EXPECT_THAT(refusal(), HasSubstr("rstrip of token <|im_end|> is not supported"));
}

TEST_F(BesideFiles, RulesThatNoFileSaysAreRefused) {
  for (const auto& [config, word] :
       {std::pair<const char*, const char*>(R"({"split_special_tokens": true})", "split_special_tokens"),
        {R"({"do_lower_case": true})", "do_lower_case"},
        {R"({"sp_model_kwargs": {"enable_sampling": true}})", "enable_sampling"},
        {R"({"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", null]}})",
         "auto_map"}}) {
    put("tokenizer_config.json", config);
    EXPECT_THAT(refusal(), HasSubstr(word));
  }
  put("tokenizer_config.json",
      R"({"split_special_tokens": false, "do_lower_case": null, "sp_model_kwargs": {},
    "tokenizer_class": "Qwen2TokenizerFast", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", null]}})");
  EXPECT_NO_THROW(open());
}

TEST_F(BesideFiles, TheMapNamesTokensWhereTheConfigDoesNotListAll) {
  put("special_tokens_map.json", R"({"bos_token": "<|im_start|>"})");
  put("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|im_end|>"})");
  EXPECT_EQ(open()->document_start(), open()->find("<|im_start|>"));
  put("tokenizer_config.json",
      R"({"add_bos_token": true, "bos_token": "<|im_end|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(open()->document_start(), open()->find("<|im_end|>"));
}

TEST_F(BesideFiles, APrefixSpaceThatFilesDisagreeOnIsRefused) {
  auto document = json::parse(files::read_text(golden("qwen/tokenizer.json")));
  document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  put("tokenizer.json", document.dump());
  put("tokenizer_config.json", R"({"add_prefix_space": false})");
  EXPECT_NO_THROW(open());
  put("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_THAT(refusal(), HasSubstr("add_prefix_space"));
}

TEST(ByteBpe, FindsPiecesAsTheVocabularySpellsThem) {
  const auto tokenizer = open_tokenizer(golden("llama3"));
  ASSERT_TRUE(tokenizer->find("\xC4\xA0return"));  // a space is U+0120
  EXPECT_EQ(tokenizer->decode(std::vector{*tokenizer->find("\xC4\xA0return")}, false), " return");
  EXPECT_EQ(tokenizer->find(" return"), std::nullopt);
  EXPECT_EQ(tokenizer->find("no such piece"), std::nullopt);
  EXPECT_EQ(tokenizer->find("\xFF"), std::nullopt);
  EXPECT_EQ(tokenizer->unknown(), std::nullopt);
}

TEST(ByteBpe, RefusesWhatItDoesNotSupportByName) {
  const std::pair<json, const char*> cases[] = {
      {{{"model", {{"type", "Unigram"}}}}, "Unigram"},
      {{{"model", {{"dropout", 0.1}}}}, "dropout"},
      {{{"model", {{"end_of_word_suffix", "</w>"}}}}, "end_of_word_suffix"},
      {{{"normalizer", {{"type", "Lowercase"}}}}, "Lowercase"},
      {{{"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}}}}}}, "NFKC"},
      {{{"pre_tokenizer", nullptr}}, "without a ByteLevel"},
      {{{"pre_tokenizer", {{"type", "Metaspace"}}}}, "Metaspace"},
      {{{"pre_tokenizer", {{"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "ByteLevel"}}}}}}},
       "behind ByteLevel"},
      {{{"added_tokens", {{{"id", 0}, {"content", "x"}, {"lstrip", true}}}}}, "lstrip"},
  };
  for (const auto& [change, word] : cases) {
    json document = llama3();
    document.merge_patch(change);
    if (change.contains("pre_tokenizer") && change["pre_tokenizer"].is_null())
      document["pre_tokenizer"] = nullptr;
    try {
      from(document.dump());
      ADD_FAILURE() << "accepted: " << change;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(word));
      EXPECT_EQ(error.exit(), Exit::usage);
    }
  }
  json document = llama3();
  document["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext";
  EXPECT_THROW(from(document.dump()), Error);
  document = llama3();
  document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(unfinished";
  EXPECT_THROW(from(document.dump()), Error);
}

TEST(ByteBpe, RefusesWhatContradictsItself) {
  const auto refused = [](const char* word, const auto& change) {
    json document = llama3();
    change(document);
    try {
      from(document.dump());
      ADD_FAILURE() << "accepted: " << word;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(word));
    }
  };
  refused("given twice", [](json& d) { d["model"]["vocab"]["a"] = 5; });
  refused("not below", [](json& d) { d["model"]["vocab"]["zz"] = 4'000'000'000u; });
  refused("not below", [](json& d) { d["model"]["vocab"]["zz"] = -1; });
  refused("not below", [](json& d) { d["model"]["vocab"]["zz"] = "3"; });
  refused("does not have", [](json& d) { d["model"]["merges"].push_back({"q", "\xC4\xA0q"}); });
  refused("not two pieces", [](json& d) { d["model"]["merges"].push_back("a b c"); });
  refused("not two pieces", [](json& d) { d["model"]["merges"].push_back({"a"}); });
  refused("empty piece", [](json& d) { d["model"]["merges"].push_back({"", "a"}); });
  refused("is next", [](json& d) { d["added_tokens"][1]["id"] = 7000; });
  refused("is next", [](json& d) { d["added_tokens"].push_back(d["added_tokens"][0]); });
  refused("given twice", [](json& d) {
    d["added_tokens"][2] = {{"id", 602}, {"content", d["added_tokens"][0]["content"]}};
  });
  refused("cannot spell byte", [](json& d) {
    auto& vocabulary = d["model"]["vocab"];
    vocabulary["odd\xE4\xB8\xAD"] = vocabulary["a"];
    vocabulary.erase("a");
    d["model"]["merges"] = json::array();
  });
  refused("nested", [](json& d) {
    json deep;
    for (int i = 0; i < 100; ++i) deep = json::array({deep});
    d["x"] = deep;
  });
}

TEST(ByteBpe, DamagedFilesAreErrors) {
  const std::string whole = files::read_text(golden("qwen/tokenizer.json"));
  for (std::size_t cut = 0; cut + 2 < whole.size(); cut += 97)
    EXPECT_THROW(from(whole.substr(0, cut)), Error) << cut;
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {  // may be read or not, but nothing else
    std::string broken = whole;
    for (int j = 0; j < 3; ++j) broken[random() % broken.size()] = static_cast<char>(random());
    try {
      encoded(*from(broken), "a b <|im_end|> caf\xC3\xA9 12");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace holdfast::text
