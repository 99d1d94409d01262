#include "src/tools/corpus/inputs.hpp"

#include "tests/tools/corpus/corpus_fixture.hpp"

namespace holdfast::corpus {
namespace {

using testing::ElementsAre;

class InputsTest : public CorpusTest {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Input& input : inputs_of(settings_).files)
      all.push_back(input.path.lexically_relative(folder_ / "in"));
    return all;
  }
};

TEST_F(InputsTest, folders_by_the_bytes_of_their_paths) {
  for (const char* name : {"b", "a/z", "a-b", "a/.x/y", ".git/c", "B", "_SUCCESS", ".part.crc", "c.crc"})
    put(name, "1");
  put("e", "");
  EXPECT_THAT(names(), ElementsAre("B", "a-b", "a/z", "b", "e"));
}

TEST_F(InputsTest, our_own_files_are_no_input) {
  settings_.output = folder_ / "in/tokens.bin";
  settings_.train_vocabulary = 300;
  for (const char* name : {"text", "tokens.bin", "tokens.val.bin", "tokens.bin.card.json", "tokens.model",
                           "tokens.bin.work/0123/part-000000.json"})
    put(name, "1");
  EXPECT_THAT(names(), ElementsAre("text"));
}

TEST_F(InputsTest, formats_by_name) {
  const auto format = [&](const std::string& name) {
    settings_.input = {put(name, "1")};
    return inputs_of(settings_).files.at(0).format;
  };
  for (const char* name : {"a.jsonl", "a.json", "a.ndjson", "a.jsonl.gz", "a.json.zst"})
    EXPECT_EQ(format(name), Format::jsonl);
  for (const char* name : {"a.txt", "a", "a.txt.gz", "a.gz", "jsonl"}) EXPECT_EQ(format(name), Format::text);
  settings_.format = Format::text;
  EXPECT_EQ(format("a.jsonl"), Format::text) << "what was asked for counts";
}

TEST_F(InputsTest, what_describes_a_data_set_is_no_part_of_it) {
  for (const char* name :
       {"README.md", "LICENSE", "train/a.jsonl", "train/README", "READMEs.jsonl", "notes.txt"})
    put(name, "1");
  EXPECT_THAT(names(), ElementsAre("READMEs.jsonl", "notes.txt", "train/a.jsonl"));
  EXPECT_EQ(inputs_of(settings_).left_out.size(), 3u);
  settings_.input = {folder_ / "in/README.md"};
  EXPECT_EQ(inputs_of(settings_).files.size(), 1u) << "a file that is named is meant";
  std::filesystem::remove_all(folder_ / "in");
  put("README.md", "1"), put("doc/a.md", "1");
  settings_.input = {folder_ / "in"};
  EXPECT_THAT(names(), ElementsAre("README.md", "doc/a.md")) << "texts are all taken";
}

TEST_F(InputsTest, arrays_are_seen_by_their_first_byte) {
  const auto is_array = [&](const std::string& name, const std::string& text) {
    settings_.input = {put(name, text)};
    return inputs_of(settings_).files.at(0).array;
  };
  EXPECT_TRUE(is_array("a.json", "[{}]"));
  EXPECT_TRUE(is_array("a.json", "\xEF\xBB\xBF\r\n [\n{}]"));
  EXPECT_TRUE(is_array("a.json.gz", gzipped("[{}]")));
  EXPECT_FALSE(is_array("a.json", "{}"));
  EXPECT_FALSE(is_array("a.txt", "[x]"));
}

TEST_F(InputsTest, pointers_of_git_lfs_are_refused) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  for (const char* name : {"a.jsonl", "a.txt", "a.jsonl.zst"}) {
    settings_.input = {put(name, pointer)};
    EXPECT_THAT(refusal(),
                testing::AllOf(testing::HasSubstr("Git LFS pointer"), testing::HasSubstr("git lfs pull")))
        << name;
  }
}

constexpr std::uint64_t kib = 1 << 10, mib = 1 << 20;

Input input_of(Format format, std::uint64_t bytes, Compression compression = Compression::none) {
  return {"", bytes, 0, format, compression};
}

TEST(Parts, small_files_share_and_big_files_of_lines_are_cut) {
  const auto parts =
      parts_of({input_of(Format::text, 256 * kib), input_of(Format::text, 512 * kib),
                input_of(Format::text, 768 * kib), input_of(Format::jsonl, 2304 * kib),
                input_of(Format::text, 50 * mib), input_of(Format::jsonl, 9 * mib, Compression::gzip)});
  EXPECT_THAT(parts, ElementsAre(Part{{0, 0, 256 * kib}, {1, 0, 512 * kib}}, Part{{2, 0, 768 * kib}},
                                 Part{{3, 0, mib}}, Part{{3, mib, 2 * mib}}, Part{{3, 2 * mib, 2304 * kib}},
                                 Part{{4, 0, 50 * mib}}, Part{{5, 0, 9 * mib}}));
}

TEST(Parts, a_large_corpus_has_parts_of_64_mib) {
  const auto parts = parts_of({input_of(Format::jsonl, mib * mib)});
  EXPECT_EQ(parts.size(), std::size_t{1} << 14);
}

TEST(Parts, the_tail) {
  const std::vector<Input> inputs = {input_of(Format::text, mib), input_of(Format::text, 3 * mib)};
  const Border border = tail_border(inputs, 0.5);
  EXPECT_EQ(border.input, 1u);
  EXPECT_EQ(border.at, mib);
  EXPECT_FALSE(border.is_behind(0, mib));
  EXPECT_FALSE(border.is_behind(1, mib - 1));
  EXPECT_TRUE(border.is_behind(1, mib));
  EXPECT_TRUE(border.is_behind(2, 0));
  EXPECT_EQ(tail_border(inputs, 0).input, 2u) << "nothing is held out";
}

}  // namespace
}  // namespace holdfast::corpus
