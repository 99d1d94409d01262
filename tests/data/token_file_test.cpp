#include "src/data/token_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "src/base/error.hpp"

namespace holdfast::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TokenFileTest : public testing::Test {
 protected:
  TokenFileTest() {
    std::string name = fs::temp_directory_path() / "holdfast-tokens-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "tokens.bin";
  }
  ~TokenFileTest() override { fs::remove_all(folder_); }

  void write(std::int64_t vocabulary, const std::vector<std::int32_t>& tokens) const {
    TokenFileWriter writer(path_, vocabulary, hash_bytes("a tokenizer"));
    writer.append(tokens);
    writer.finish();
  }
  void flip(std::streamoff offset) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(offset);
    file.put(byte);
  }
  /// The message of the Error (usage) that opening must give.
  std::string refusal(std::int64_t least = 1) const {
    try {
      TokenFile::open(path_, least);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      EXPECT_FALSE(error.hint().empty());
      return error.what();
    }
    return "opened";
  }

  fs::path folder_, path_;
};

TEST_F(TokenFileTest, is_written_where_nobody_else_writes) {
  fs::create_symlink(folder_ / "elsewhere", path_.string() + ".tmp-" + std::to_string(::getpid()));
  TokenFileWriter one(path_, 256, hash_bytes("a")), other(path_, 256, hash_bytes("b"));
  one.append(std::vector<std::int32_t>{1, 2, 3});
  other.append(std::vector<std::int32_t>{4, 5});
  one.finish();
  EXPECT_EQ(TokenFile::open(path_).size(), 3);
  other.finish();
  EXPECT_EQ(TokenFile::open(path_).size(), 2);
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere")) << "a link that somebody has put there";
}

TEST_F(TokenFileTest, two_byte_tokens_come_back) {
  write(65536, {0, 1, 65535, 42});
  const TokenFile file = TokenFile::open(path_);
  EXPECT_EQ(file.header().bytes_per_token, 2u);
  EXPECT_EQ(file.vocabulary(), 65536);
  EXPECT_EQ(file.size(), 4);
  std::vector<std::int32_t> part(2);
  file.copy(2, part);
  EXPECT_EQ(part, (std::vector<std::int32_t>{65535, 42}));
  EXPECT_EQ(hex(file.header().tokenizer), hex(hash_bytes("a tokenizer")));
  file.verify();
  EXPECT_EQ(fs::file_size(path_), 4096 + 4 * 2u);
}

TEST_F(TokenFileTest, four_byte_tokens_come_back) {
  write(65537, {65536, 7});
  const TokenFile file = TokenFile::open(path_);
  EXPECT_EQ(file.header().bytes_per_token, 4u);
  std::vector<std::int32_t> both(2);
  file.copy(0, both);
  EXPECT_EQ(both, (std::vector<std::int32_t>{65536, 7}));
  file.verify();
}

TEST_F(TokenFileTest, many_appends_give_the_bytes_of_one) {
  std::vector<std::int32_t> tokens(1'500'000);  // more than the writer's buffer
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 2654435761u % 512);
  write(512, tokens);
  const std::string whole = files::read_text(path_);
  {
    TokenFileWriter writer(path_, 512, hash_bytes("a tokenizer"));
    std::span<const std::int32_t> rest = tokens;
    for (std::size_t size = 1; !rest.empty(); size = size * 3 + 1) {
      writer.append(rest.first(std::min(size, rest.size())));
      rest = rest.subspan(std::min(size, rest.size()));
    }
    writer.finish();
  }
  EXPECT_TRUE(files::read_text(path_) == whole);
  TokenFile::open(path_).verify();
}

TEST_F(TokenFileTest, identity_is_of_the_tokens) {
  write(512, {1, 2, 3});
  const std::string first = TokenFile::open(path_).identity();
  EXPECT_EQ(first.size(), 32u);
  write(512, {1, 2, 4});
  EXPECT_NE(TokenFile::open(path_).identity(), first);
}

TEST_F(TokenFileTest, documents_and_what_is_learned_come_back) {
  const std::vector<std::vector<std::int32_t>> texts = {{1, 2, 3, 4, 5}, {6}, {}, {7, 8, 9, 10, 11, 12, 13}};
  std::vector<bool> learned;
  {
    TokenFileWriter writer(path_, 512);
    for (const auto& text : texts) {
      writer.begin_document();
      std::vector<bool> part;
      for (const std::int32_t token : text) part.push_back(token > 3 && token % 3 != 0);
      writer.append(text, part);
      learned.insert(learned.end(), part.begin(), part.end());
    }
    writer.finish();
  }
  const TokenFile file = TokenFile::open(path_);
  file.verify();
  ASSERT_EQ(file.documents(), 3) << "one without a token is none";
  EXPECT_EQ(file.document(1), 5);
  EXPECT_EQ(file.document(2), 6);
  for (std::int64_t first = 0; first <= file.size(); ++first)
    for (std::int64_t count = 0; first + count <= file.size(); ++count)
      EXPECT_EQ(file.learned(first, count),
                std::vector<bool>(learned.begin() + first, learned.begin() + first + count))
          << first << ' ' << count;
  EXPECT_THROW(file.learned(1, file.size()), std::logic_error);
  EXPECT_EQ(file.document_begins(1, 2), (std::vector<std::int64_t>{5, 6}));
  EXPECT_THROW(file.document_begins(2, 2), std::logic_error);
  std::vector<std::int32_t> starts(6);
  file.document_starts(3, starts);
  EXPECT_EQ(starts, (std::vector<std::int32_t>{0, 0, 2, 3, 3, 3}));
  file.document_starts(7, starts);
  EXPECT_EQ(starts, std::vector<std::int32_t>(6, 0));
  EXPECT_TRUE(file.header().masked);

  const auto bytes = static_cast<std::streamoff>(fs::file_size(path_));
  EXPECT_EQ(bytes, 4096 + 32 + 3 * 8 + 2);
  for (const std::streamoff at : {bytes - 1, bytes - 3, bytes - 2 - 24}) {
    flip(at);
    EXPECT_THROW(TokenFile::open(path_).verify(), Error) << "byte " << at;
    flip(at);
  }
  fs::resize_file(path_, static_cast<std::uintmax_t>(bytes - 1));
  EXPECT_THAT(refusal(), HasSubstr("truncated"));
}

TEST_F(TokenFileTest, the_first_token_that_is_not_learned_may_come_late) {
  for (const int late : {0, 1, 7, 8, 9, 4000}) {
    TokenFileWriter writer(path_, 512);
    const std::vector<std::int32_t> before(late, 5), after(20, 6);
    writer.append(before);
    writer.append(after, false);
    writer.append(before);
    writer.finish();
    const TokenFile file = TokenFile::open(path_);
    file.verify();
    const auto learned = file.learned(0, file.size());
    for (std::int64_t i = 0; i < file.size(); ++i)
      ASSERT_EQ(learned[i], i < late || i >= late + 20) << i << " of " << late;
  }
}

TEST_F(TokenFileTest, rows_belong_to_the_identity) {
  std::string identities[2];
  for (const std::int64_t row : {0, 2}) {
    TokenFileWriter writer(path_, 512, {}, row);
    writer.append(std::vector<std::int32_t>{1, 2, 3, 4});
    writer.finish();
    const TokenFile file = TokenFile::open(path_);
    EXPECT_EQ(file.row(), row);
    file.verify();
    identities[row / 2] = file.identity();
  }
  EXPECT_NE(identities[0], identities[1]);
  TokenFileWriter writer(path_, 512, {}, 2);
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  EXPECT_THROW(writer.finish(), std::logic_error);
}

TEST_F(TokenFileTest, without_finish_the_old_file_stays) {
  write(512, {1, 2, 3});
  {
    TokenFileWriter writer(path_, 512);
    writer.append(std::vector<std::int32_t>{9});
  }
  EXPECT_EQ(TokenFile::open(path_).size(), 3);
  EXPECT_EQ(files::list(folder_).size(), 1u) << "the unfinished file is gone";
}

TEST_F(TokenFileTest, missing_file) { EXPECT_THAT(refusal(), HasSubstr("No such file")); }

TEST_F(TokenFileTest, empty_file) {
  std::ofstream{path_};
  EXPECT_THAT(refusal(), HasSubstr("it is empty"));
}

TEST_F(TokenFileTest, shorter_than_its_header) {
  write(512, {1, 2, 3});
  fs::resize_file(path_, 100);
  EXPECT_THAT(refusal(), HasSubstr("it has 100 bytes"));
}

TEST_F(TokenFileTest, truncated_and_too_long) {
  write(512, {1, 2, 3});
  fs::resize_file(path_, 4096 + 5);
  EXPECT_THAT(refusal(), HasSubstr("truncated: 4101 bytes, its header promises 4102"));
  fs::resize_file(path_, 4096 + 8);
  EXPECT_THAT(refusal(), HasSubstr("too long"));
}

TEST_F(TokenFileTest, too_few_tokens) {
  write(512, {1, 2, 3});
  EXPECT_THAT(refusal(4), HasSubstr("3 tokens, 4 are needed"));
}

TEST_F(TokenFileTest, another_kind_of_file) {
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_THAT(refusal(), HasSubstr("not a token file"));
}

TEST_F(TokenFileTest, a_pointer_to_one) {
  std::ofstream(path_) << "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  EXPECT_THAT(refusal(), HasSubstr("it is a Git LFS pointer"));
}

TEST_F(TokenFileTest, every_damaged_header_byte_is_noticed) {
  for (std::streamoff offset = 0; offset < 96; ++offset) {
    write(512, {1, 2, 3});
    flip(offset);
    EXPECT_NE(refusal(), "opened") << "byte " << offset;
  }
}

TEST_F(TokenFileTest, damaged_token_fails_verification_and_never_leaves_copy) {
  write(300, {1, 2, 3});
  flip(4096 + 3);  // high byte of token 1: 2 becomes 16386
  const TokenFile file = TokenFile::open(path_);
  EXPECT_THROW(file.verify(), Error);
  std::vector<std::int32_t> out(3);
  EXPECT_THROW(file.copy(0, out), Error);
}

TEST_F(TokenFileTest, broken_contracts) {
  write(512, {1, 2, 3});
  const TokenFile file = TokenFile::open(path_);
  std::vector<std::int32_t> out(2);
  EXPECT_THROW(file.copy(2, out), std::logic_error);
  EXPECT_THROW(file.copy(-1, out), std::logic_error);
  TokenFileWriter writer(folder_ / "other", 512);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{512}), std::logic_error);
}

TEST_F(TokenFileTest, unwritable_place) {
  try {
    TokenFileWriter(folder_ / "no" / "tokens.bin", 512);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
}

}  // namespace
}  // namespace holdfast::data
