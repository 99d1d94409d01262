#include "src/tools/corpus/own_tokens.hpp"

#include "src/base/as_size.hpp"
#include "tests/tools/corpus/corpus_fixture.hpp"

namespace holdfast::corpus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class OwnTokensTest : public CorpusTest {
 protected:
  OwnTokensTest() {
    settings_.tokenizer.clear();
    settings_.vocabulary = 1000;
  }
  static std::vector<Tokens> documents_in(const std::filesystem::path& path) {
    const data::TokenFile file = data::TokenFile::open(path);
    file.verify();
    std::vector<Tokens> all;
    for (std::int64_t i = 0; i < file.documents(); ++i) {
      const std::int64_t end = i + 1 < file.documents() ? file.document(i + 1) : file.size();
      all.emplace_back(as_size(end - file.document(i)));
      file.copy(file.document(i), all.back());
    }
    return all;
  }
  /// A pair of files with documents of these sequences.
  void put_megatron(const std::vector<std::vector<Tokens>>& all, int type) const {
    std::vector<std::int32_t> lengths;
    std::vector<std::int64_t> places, firsts = {0};
    std::string data;
    for (const auto& document : all) {
      for (const Tokens& sequence : document) {
        places.push_back(static_cast<std::int64_t>(data.size()));
        lengths.push_back(static_cast<std::int32_t>(sequence.size()));
        data += type == 4 ? raw(sequence) : raw(std::vector<std::uint16_t>(sequence.begin(), sequence.end()));
      }
      firsts.push_back(static_cast<std::int64_t>(lengths.size()));
    }
    put("c.bin", data);
    put("c.idx", std::string("MMIDIDX\0\0", 9) + raw<std::uint64_t>({1}) + static_cast<char>(type) +
                     raw<std::uint64_t>({lengths.size(), firsts.size()}) + raw(lengths) + raw(places) +
                     raw(firsts));
  }
};

TEST_F(OwnTokensTest, raw_numbers_of_both_widths) {
  settings_.format = Format::u16;
  put("a", raw<std::uint16_t>({5, 999, 7}));
  put("b", raw<std::uint16_t>({8}));
  const auto card = run();
  EXPECT_THAT(documents_in(settings_.output), ElementsAre(Tokens{5, 999, 7}, Tokens{8}))
      << "a file is a document";
  EXPECT_EQ(card["vocabulary"], 1000);
  EXPECT_EQ(card["tokenizer"], nullptr);
  const std::string two = output();
  settings_.format = Format::u32;
  put("a", raw<std::uint32_t>({5, 999, 7}));
  put("b", raw<std::uint32_t>({8}));
  run();
  EXPECT_TRUE(output() == two);
}

/// A shard as llm.c's write_datafile() makes it.
std::string shard(std::int32_t magic, std::int32_t tokens, const std::string& data) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = 1;
  header[2] = tokens;
  return raw(header) + data;
}

TEST_F(OwnTokensTest, shards_of_llm_c) {
  settings_.format = Format::u16;
  put("a", shard(20240520, 3, raw<std::uint16_t>({5, 999, 7})));
  run();
  EXPECT_THAT(documents_in(settings_.output), ElementsAre(Tokens{5, 999, 7}));
  settings_.document_start = 7;
  put("a", shard(20240520, 4, raw<std::uint16_t>({7, 1, 7, 2})));
  run();
  EXPECT_THAT(documents_in(settings_.output), ElementsAre(Tokens{7, 1}, Tokens{7, 2}));
  settings_.document_start.reset();
  put("a", shard(20240801, 2, raw<std::int32_t>({5, 9})));
  EXPECT_THAT(refusal(), HasSubstr("a shard of llm.c with tokens of 4 bytes"));
  settings_.format = Format::u32;
  run();
  EXPECT_THAT(documents_in(settings_.output), ElementsAre(Tokens{5, 9}));
  put("a", shard(20240801, 3, raw<std::int32_t>({5, 9})));
  EXPECT_THAT(refusal(), HasSubstr("promises 3 tokens, and it has 2"));
}

TEST_F(OwnTokensTest, files_of_other_kinds_are_no_raw_tokens) {
  settings_.format = Format::u16;
  for (const auto& [begin, word] : {std::pair<std::string, const char*>("\x93NUMPY\x01\0", "NumPy"),
                                    {"HFTOKENS", "token file of Holdfast"},
                                    {"\x28\xb5\x2f\xfd", "zstd"},
                                    {"PK\x03\x04", "archive"}}) {
    put("a", begin + std::string(8, 'a'));
    EXPECT_THAT(refusal(), HasSubstr(word));
  }
}

TEST_F(OwnTokensTest, documents_begin_with_a_token) {
  settings_.format = Format::u16;
  settings_.document_start = 1;
  settings_.dedupe = Dedupe::exact;
  put("a", raw<std::uint16_t>({1, 5, 6, 1, 7, 1, 5, 6, 1}));
  const auto card = run();
  EXPECT_THAT(documents_in(settings_.output), ElementsAre(Tokens{1, 5, 6}, Tokens{1, 7}, Tokens{1}));
  EXPECT_EQ(card["removed"]["exact"], 1);
}

TEST_F(OwnTokensTest, the_tail_of_raw_numbers_is_held_out) {
  settings_.format = Format::u16;
  settings_.val_fraction = 0.25;
  std::vector<std::uint16_t> numbers(200'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i % 1000);
  put("a", raw(numbers));
  run();
  EXPECT_EQ(data::TokenFile::open(settings_.output).size(), 150'000);
  const auto held_out = data::TokenFile::open(validation_path(settings_.output));
  EXPECT_EQ(held_out.size(), 50'000);
  std::int32_t second[1];
  held_out.copy(1, second);
  EXPECT_EQ(second[0], 1);
}

TEST_F(OwnTokensTest, pairs_of_megatron) {
  settings_.format = Format::megatron;
  const std::vector<std::vector<Tokens>> all = {{{1, 2, 3}}, {{4}, {5, 6}}, {}, {{}}, {{7}}};
  for (const int type : {4, 8}) {
    put_megatron(all, type);
    const auto card = run();
    EXPECT_THAT(documents_in(settings_.output), ElementsAre(Tokens{1, 2, 3}, Tokens{4, 5, 6}, Tokens{7}));
    EXPECT_EQ(card["read"]["empty"], 2);
  }
  settings_.input = {folder_ / "in/c.bin"};
  EXPECT_EQ(refusal(), "accepted") << "either half names the pair";
}

TEST_F(OwnTokensTest, refused_tokens) {
  settings_.format = Format::u16;
  put("a", raw<std::uint16_t>({5, 1000}));
  EXPECT_THAT(refusal(), HasSubstr("the token at byte 2 is 1000, outside the vocabulary of 1000"));
  put("a", "123");
  EXPECT_THAT(refusal(), HasSubstr("3 bytes are not a multiple"));
  settings_.vocabulary = 0;
  EXPECT_THAT(refusal(), HasSubstr("exactly one of --vocabulary and --tokenizer"));
  settings_.vocabulary = 1000;
  settings_.dedupe = Dedupe::near;
  EXPECT_THAT(refusal(), HasSubstr("near duplicates of tokens"));
}

TEST_F(OwnTokensTest, an_index_that_lies_is_refused) {
  settings_.format = Format::megatron;
  put_megatron({{{1, 2, 3}}, {{4}, {5, 6}}}, 8);
  const std::string good = files::read_text(folder_ / "in/c.idx");
  const auto with = [&](std::size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    put("c.idx", bad);
    return refusal();
  };
  EXPECT_THAT(with(0, 'X'), HasSubstr("MMIDIDX"));
  EXPECT_THAT(with(9, 2), HasSubstr("its version is 2"));
  EXPECT_THAT(with(17, 6), HasSubstr("of type 6"));
  EXPECT_THAT(with(25, '\x7f'), HasSubstr("promises more"));
  EXPECT_THAT(with(33, '\x7f'), HasSubstr("promises more"));
  EXPECT_THAT(with(26, 0), HasSubstr("list of documents is empty"));
  EXPECT_THAT(with(37, '\x80'), HasSubstr("negative length"));
  EXPECT_THAT(with(36, 1), HasSubstr("beyond the .bin file"));
  EXPECT_THAT(with(53, '\x7f'), HasSubstr("beyond the .bin file"));
  EXPECT_THAT(with(54, 1), HasSubstr("not in one piece"));
  EXPECT_THAT(with(good.size() - 8, 4), HasSubstr("not there"));
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    put("c.idx", good.substr(0, bytes));
    EXPECT_NE(refusal(), "accepted") << bytes;
  }
  std::filesystem::remove(folder_ / "in/c.idx");
  settings_.input = {folder_ / "in/c.bin"};
  EXPECT_THAT(refusal(), HasSubstr("c.idx"));
}

}  // namespace
}  // namespace holdfast::corpus
