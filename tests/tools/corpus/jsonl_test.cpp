#include "src/tools/corpus/jsonl.hpp"

#include "tests/tools/corpus/corpus_fixture.hpp"

namespace holdfast::corpus {
namespace {

using testing::ElementsAre;

class LinesTest : public CorpusTest {
 protected:
  static std::vector<std::string> lines_of(const std::filesystem::path& path, std::uint64_t begin,
                                           std::uint64_t end) {
    Lines lines(open_stream(path, Compression::none, begin > 0 ? begin - 1 : 0), begin, end);
    std::vector<std::string> all;
    for (Line line; lines.next(line);)
      all.push_back(std::to_string(line.begin) + ":" + std::string(line.text));
    return all;
  }
};

TEST_F(LinesTest, with_and_without_a_last_line_feed) {
  EXPECT_THAT(lines_of(put("a", "one\n\ntwo\n"), 0, 100), ElementsAre("0:one", "4:", "5:two"));
  EXPECT_THAT(lines_of(put("a", "one\ntwo"), 0, 100), ElementsAre("0:one", "4:two"));
  EXPECT_THAT(lines_of(put("a", ""), 0, 100), ElementsAre());
}

TEST_F(LinesTest, every_cut_gives_every_line_once) {
  const std::string text = "one\n\ntwo and\nthree\nfour";
  const auto path = put("a", text);
  const auto whole = lines_of(path, 0, text.size());
  for (std::uint64_t cut = 1; cut < text.size(); ++cut) {
    auto both = lines_of(path, 0, cut);
    for (const auto& line : lines_of(path, cut, text.size())) both.push_back(line);
    EXPECT_EQ(both, whole) << cut;
  }
}

TEST_F(LinesTest, lines_longer_than_the_first_buffer) {
  const std::string a(3'000'000, 'a'), b(1 << 20, 'b');
  const auto all = lines_of(put("a", a + "\n" + b + "\nc"), 0, UINT64_MAX);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_TRUE(all[0] == "0:" + a);
  EXPECT_TRUE(all[1] == "3000001:" + b);
  EXPECT_EQ(all[2], "4048578:c");
}

/// A line without an end, and then a short one.
class EndlessLine final : public ByteStream {
 public:
  std::size_t read(char* to, std::size_t most) override {
    if (left_ == 0) return 0;
    const std::size_t now = std::min(most, left_);
    std::fill_n(to, now, 'x');
    left_ -= now;
    if (left_ == 0) to[now - 1] = 'y', to[now - 2] = '\n';
    return now;
  }

 private:
  std::size_t left_ = Lines::max_bytes + (10 << 20);
};

TEST(LongLines, are_skipped_without_being_held) {
  Lines lines(std::make_unique<EndlessLine>(), 0, UINT64_MAX);
  Line line;
  ASSERT_TRUE(lines.next(line));
  EXPECT_TRUE(line.too_long);
  ASSERT_TRUE(lines.next(line));
  EXPECT_FALSE(line.too_long);
  EXPECT_EQ(line.text, "y");
  EXPECT_FALSE(lines.next(line));
}

class JsonTextTest : public testing::Test {
 protected:
  /// The text, or why there is none.
  std::string read(std::string line, const std::string& key = "text") {
    const std::size_t bytes = line.size();
    line.append(64, '}');  // whatever stands behind the line
    JsonText json(key);
    std::string text;
    const auto why = json.read(std::string_view(line).substr(0, bytes), text, repaired_);
    return why ? "broken: " + *why : text;
  }
  std::uint64_t repaired_ = 0;
};

TEST_F(JsonTextTest, strings_with_escapes) {
  EXPECT_EQ(read(R"({"a": [1, {"text": "no"}], "text": "a\"\\\n\u00e9\ud83d\ude00"})"),
            "a\"\\\n\u00e9\U0001F600");
  EXPECT_EQ(read(R"({"body": "x"})", "body"), "x");
  EXPECT_EQ(read(R"( {"text": "x"} )"
                 "\r"),
            "x");
  EXPECT_EQ(read(R"({"text": ""})"), "");
}

TEST_F(JsonTextTest, broken_lines) {
  for (const char* line :
       {"{", "}", "[1]", "null", "", "x", R"({"text": "a")", R"({"text": "a"} x)", R"({"text" "a"})",
        R"({"text": "a",})", R"({"text": null})", R"({"Text": "a"})", R"({"text": "\x"})",
        R"({"text": "\ud80"})", "{\"text\": \"a\tb\"}", R"({"text": "a", "text": "b"})"})
    EXPECT_TRUE(read(line).starts_with("broken: ")) << line << ": " << read(line);
  EXPECT_TRUE(read(std::string(100'000, '[')).starts_with("broken: ")) << "deep nesting";
}

/// As Python's json reads them.
TEST_F(JsonTextTest, numbers_under_other_keys_cost_nothing) {
  for (const char* value :
       {"18446744073709551615", "18446744073709551616", "-9223372036854775809",
        "1267650600228229401496703205376", "1e400", "-1e400", "1E-400", "NaN", "Infinity", "-Infinity",
        "[NaN, {\"x\": -Infinity}]", "1.5", "0.1234567890123456789012345678901234567890", "\"\\ud800\"",
        "\"\\udc80x\"", "\"NaN \\\" 1e400\""}) {
    EXPECT_EQ(read(std::string("{\"a\": ") + value + ", \"text\": \"NaN 1e999\"}"), "NaN 1e999") << value;
    EXPECT_EQ(read(std::string("{\"text\": \"x\", \"a\": ") + value + "}"), "x") << value;
  }
  for (const char* value :
       {"nan", "-NaN", "1NaN", "NaN1", "+1", "01", "1.", ".5", "1e", "0x10", "Infinityx", "N", "- 1"})
    EXPECT_EQ(read(std::string("{\"text\": \"x\", \"a\": ") + value + "}"), "broken: it is no JSON") << value;
  EXPECT_EQ(read(R"({"text": NaN})"), "broken: \"text\" is not a string");
  EXPECT_EQ(read(R"({"text": 1e400})"), "broken: \"text\" is not a string");
  EXPECT_EQ(read(R"({"text": "a", "text": "b"})"), "broken: it has the key \"text\" twice");
  EXPECT_EQ(read("{\"text\": \"x\", \"a\": " + std::string(5000, '[') + std::string(5000, ']') + "}"),
            "broken: its JSON is nested too deeply");
}

TEST_F(JsonTextTest, halves_of_surrogate_pairs_are_repaired) {
  EXPECT_EQ(read(R"({"text": "a\ud800b\udc00\ud83d\ude00"})"), "a\uFFFDb\uFFFD\U0001F600");
  EXPECT_EQ(repaired_, 2u);
}

class ElementsTest : public CorpusTest {
 protected:
  std::vector<std::string> elements_of(const std::string& text) const {
    Elements elements(open_stream(put("a.json", text), Compression::none), "a.json");
    std::vector<std::string> all;
    for (Line line; elements.next(line);)
      all.push_back(std::to_string(line.begin) + ":" + (line.too_long ? "too long" : std::string(line.text)));
    return all;
  }
};

TEST_F(ElementsTest, of_an_array) {
  EXPECT_THAT(elements_of("[]"), ElementsAre());
  EXPECT_THAT(elements_of("\xEF\xBB\xBF [ \n ] \n"), ElementsAre());
  EXPECT_THAT(elements_of("[1,\n {\"a\": [2, \"]},\\\"\\\\\"]} , null]\n"),
              ElementsAre("1:1", "5:{\"a\": [2, \"]},\\\"\\\\\"]} ", "29:null"));
  const std::string a(3'000'000, 'a');
  EXPECT_EQ(elements_of("[\"" + a + "\", 2]").at(1), "3000005:2");
  EXPECT_EQ(elements_of("[\"" + std::string(Lines::max_bytes + 9, 'a') + "\", 2]").at(0), "1:too long");
}

TEST_F(ElementsTest, cut_off) {
  for (const char* text : {"[", "[1", "[1,", "[{\"a\": 1}", "[\"a", "[1] 2", "[1][2]"})
    EXPECT_THROW(elements_of(text), Error) << text;
}

TEST_F(JsonTextTest, malformed_utf8_is_repaired) {
  EXPECT_EQ(read("{\"text\": \"caf\xE9\"}"), "caf\uFFFD");
  EXPECT_EQ(repaired_, 1u);
}

}  // namespace
}  // namespace holdfast::corpus
