// The header of a safetensors file: what is read, and what is refused.
#include "checkpoint/index/safetensors.hpp"
#include "checkpoint/index/safetensors_contents.hpp"
#include "checkpoint/index/safetensors_index.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint::safetensors {
namespace {

using checkpoint::testing::Folder;
using checkpoint::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What parse_header() says is wrong.
std::string complaint_about(const std::string& json, std::int64_t buffer_bytes) {
  try {
    parse_header(json, buffer_bytes);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::usage);
    return e.why();
  }
  return "nothing";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}";
}

TEST(Safetensors, readsTensorsInTheOrderOfTheirBytes) {
  const Header header =
      parse_header("{" + entry("b", "BF16", "[3]", "[8,14]") + R"(,"__metadata__":{"format":"pt"},)" +
                       entry("a", "F32", "[2,1]", "[0,8]") + "," + entry("none", "F32", "[0,7]", "[8,8]") +
                       "," + entry("one", "U8", "[]", "[14,15]") + "}  ",
                   15);
  EXPECT_THAT(header.tensors,
              ElementsAre(Tensor{"a", "F32", {2, 1}, 0, 8}, Tensor{"none", "F32", {0, 7}, 8, 0},
                          Tensor{"b", "BF16", {3}, 8, 6}, Tensor{"one", "U8", {}, 14, 1}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_TRUE(parse_header("{}", 0).tensors.empty());
}

TEST(Safetensors, refusesWhatTheFormatForbids) {
  const std::string big = "9223372036854775807";
  const struct {
    std::string json;
    std::int64_t buffer;
    const char* why;
  } rows[] = {
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"{", 0, "not JSON"},
      {"{}x", 0, "not JSON"},
      {"{\"\xff\":1}", 0, "not JSON in UTF-8"},
      {R"({"a":1})", 0, "not described by an object"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "has no data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4, "does not know"},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "not a text"},
      {"{" + entry("a", "F31", "[1]", "[0,4]") + "}", 4, "unknown dtype \"F31\""},
      {"{" + entry("a", "F32", "{}", "[0,4]") + "}", 4, "not a list"},
      {"{" + entry("a", "F32", "[1.0]", "[0,4]") + "}", 4, "not a non-negative integer"},
      {"{" + entry("a", "F32", "[-1]", "[0,4]") + "}", 4, "not a non-negative integer"},
      {"{" + entry("a", "F32", "[18446744073709551615]", "[0,4]") + "}", 4, "too large"},
      {"{" + entry("a", "F32", "[4294967296,4294967296]", "[0,4]") + "}", 4, "too large"},
      {"{" + entry("a", "F32", "[" + big + ",2]", "[0,4]") + "}", 4, "too large"},
      {"{" + entry("a", "F32", "[1]", "[0]") + "}", 4, "not two numbers"},
      {"{" + entry("a", "F32", "[1]", "[4,0]") + "}", 4, "needs 4 bytes"},
      {"{" + entry("a", "F32", "[1]", "[0,5]") + "}", 5, "needs 4 bytes"},
      {"{" + entry("a", "F32", "[1]", "[0,4]") + "}", 5, "the buffer has 5"},
      {"{" + entry("a", "F32", "[1]", "[0,4]") + "}", 3, "the buffer has 3"},
      {"{" + entry("a", "F32", "[1]", "[4,8]") + "}", 8, "not at 0"},
      {"{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[5,9]") + "}", 9,
       "not at 4"},
      {"{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[1]", "[4,8]") + "}", 8,
       "not at 8"},
      {"{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[0,4]") + "}", 4, "twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {R"({"__metadata__":[]})", 0, "not an object"},
      {R"({"__metadata__":{"a":1}})", 0, "not a text"},
      {R"({"__metadata__":{"a":{"b":{"c":{"d":{"e":1}}}}}})", 0, "nested too deeply"},
      {std::string(100000, '[').insert(0, "{\"a\":"), 0, "nested too deeply"},
  };
  for (const auto& row : rows)
    EXPECT_THAT(complaint_about(row.json, row.buffer), HasSubstr(row.why)) << row.json;
}

TEST(Safetensors, aManyDigitedNumberIsNoInteger) {
  EXPECT_THAT(complaint_about("{" + entry("a", "F32", "[1" + std::string(400, '0') + "]", "[0,4]") + "}", 4),
              ::testing::AnyOf(HasSubstr("not a non-negative integer"), HasSubstr("not JSON")));
}

TEST(Safetensors, refusesFilesThatAreTooShortOrNotOurs) {
  const Folder folder;
  const fs::path path = folder.path() / "x.safetensors";
  const auto complaint = [&](const std::string& bytes) -> std::string {
    write_file(path, bytes);
    try {
      read_header(path);
    } catch (const Error& e) {
      EXPECT_THAT(e.problem(), HasSubstr("x.safetensors is not a usable safetensors file"));
      return e.why();
    }
    return "nothing";
  };
  const auto length = [](std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); };
  EXPECT_THAT(complaint(""), HasSubstr("too short"));
  EXPECT_THAT(complaint("1234567"), HasSubstr("too short"));
  EXPECT_THAT(complaint(length(2)), HasSubstr("cut off"));
  EXPECT_THAT(complaint(length(100'000'001) + "{}"), HasSubstr("100000000 is the most"));
  EXPECT_THAT(complaint(length(~0ull) + "{}"), HasSubstr("100000000 is the most"));
  EXPECT_THAT(complaint("\x89HDF\r\n\x1a\n0123456789"), HasSubstr("is the most"));
  EXPECT_THAT(complaint("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n"),
              HasSubstr("Git LFS pointer"));
  EXPECT_EQ(complaint(length(2) + "{}"), "nothing");
  EXPECT_THROW(read_header(folder.path()), Error);
  EXPECT_THROW(read_header(folder.path() / "nowhere"), Error);
}

TEST(Safetensors, aFolderHoldsOneModel) {
  const Folder folder;
  const auto complaint = [&]() -> std::string {
    try {
      Contents contents(folder.path());
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::usage);
      return e.what();
    }
    return "nothing";
  };
  const std::string empty = std::string("\x2\0\0\0\0\0\0\0{}", 10);
  write_file(folder.path() / "pytorch_model.bin", "x");
  EXPECT_THAT(complaint(), HasSubstr("pytorch_model.bin: save the model again"));
  write_file(folder.path() / single_name, empty);
  EXPECT_EQ(complaint(), "nothing");
  write_file(folder.path() / "adapter_config.json", "{}");
  EXPECT_THAT(complaint(), HasSubstr("holds weights and adapters"));
  fs::remove(folder.path() / "adapter_config.json");
  write_file(folder.path() / index_name, R"({"weight_map": {}})");
  EXPECT_THAT(complaint(), HasSubstr("holds two models"));
  fs::remove(folder.path() / single_name);
  write_file(folder.path() / index_name,
             "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 23950\n");
  EXPECT_THAT(complaint(), HasSubstr("git lfs pull"));
}

TEST(Safetensors, whatIsPrintedIsRead) {
  std::vector<Tensor> tensors = {{"model.norm.weight", "F32", {3}, 0, 12},
                                 {"nothing", "F32", {0, 5}, 0, 0},
                                 {"quote\" \xc3\xa4", "BF16", {1, 3}, 0, 6}};
  for (const std::int64_t offset : {0, 512, 4096}) {
    const std::string text = header_text(tensors, {{"format", "pt"}}, offset);
    EXPECT_EQ(text.size() % 8, 0u);
    EXPECT_TRUE(offset == 0 || text.size() == as_size(offset));
    const Header header = parse_header(std::string_view(text).substr(8), 18);
    EXPECT_EQ(header.tensors, tensors);
    EXPECT_EQ(header.buffer_offset, static_cast<std::int64_t>(text.size()));
  }
  EXPECT_EQ(parse_header(header_text({}, {}).substr(8), 0).tensors.size(), 0u);
}

}  // namespace
}  // namespace holdfast::checkpoint::safetensors
