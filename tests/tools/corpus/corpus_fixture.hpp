#pragma once
// A folder to make corpora in, a tokenizer that tests can read, and all that `prepare` needs of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/data/token_file.hpp"
#include "src/tools/corpus/prepare.hpp"

namespace holdfast::corpus {

/// A token for each byte, behind <unk>, <s> and </s>. Texts that it encodes are counted.
class ByteTokenizer final : public text::Tokenizer {
 public:
  static constexpr int first = 3;
  /// `die_at`: the process is killed when so many texts have been encoded.
  explicit ByteTokenizer(std::atomic<int>& encoded, int die_at = 0) : encoded_(encoded), die_at_(die_at) {}

  int vocabulary() const override { return first + 256; }
  data::Hash128 identity() const override { return data::hash_bytes("bytes"); }
  void encode(std::string_view text, std::vector<text::Token>& out, text::Specials) const override {
    if (++encoded_ == die_at_) ::kill(::getpid(), SIGKILL);
    for (const char c : text) out.push_back(first + static_cast<unsigned char>(c));
  }
  void encode_template(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>>,
                       std::vector<text::Token>& out) const override {
    encode(text, out, text::Specials::as_text);
  }
  void encode_template_at(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> parsed,
                          std::vector<text::Token>& out, std::vector<std::size_t>& begins) const override {
    encode_template(text, parsed, out);
    for (std::size_t i = 0; i < text.size(); ++i) begins.push_back(i);
  }
  std::string decode(std::span<const text::Token> tokens, bool) const override {
    std::string text;
    for (const text::Token token : tokens)
      if (token >= first) text += static_cast<char>(token - first);
    return text;
  }
  std::optional<text::Token> find(std::string_view) const override { return std::nullopt; }
  std::optional<text::Token> document_start() const override { return 1; }
  std::optional<text::Token> document_end() const override { return 2; }
  std::optional<text::Token> unknown() const override { return 0; }

 private:
  std::atomic<int>& encoded_;
  int die_at_;
};

inline std::string gzipped(const std::string& text) {
  z_stream state = {};
  deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

inline std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class CorpusTest : public testing::Test {
 protected:
  CorpusTest() {
    std::string name = std::filesystem::temp_directory_path() / "holdfast-corpus-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::filesystem::create_directory(folder_ / "in");
    put("../tokenizer", "");
    settings_.input = {folder_ / "in"};
    settings_.output = folder_ / "tokens.bin";
    settings_.tokenizer = folder_ / "tokenizer";
    settings_.workers = 2;
    around_.open_tokenizer = [this](const auto&) {
      return std::make_unique<ByteTokenizer>(encoded_, die_at_);
    };
    around_.free_bytes = [](const auto&) { return std::uint64_t{1} << 40; };
  }
  ~CorpusTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path put(const std::string& name, const std::string& text) const {
    const auto path = folder_ / "in" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  nlohmann::ordered_json run() { return prepare(settings_, around_); }
  std::string refusal(Exit exit = Exit::usage) {
    try {
      run();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), exit) << error.what();
      return error.what();
    }
    return "accepted";
  }
  std::string output() const { return files::read_text(settings_.output); }
  /// Documents as text, "<" and ">" where begin and end tokens are.
  std::vector<std::string> documents(const std::filesystem::path& path) const {
    const data::TokenFile file = data::TokenFile::open(path);
    file.verify();
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < file.documents(); ++i) {
      const std::int64_t end = i + 1 < file.documents() ? file.document(i + 1) : file.size();
      std::vector<std::int32_t> tokens(as_size(end - file.document(i)));
      file.copy(file.document(i), tokens);
      std::string text;
      for (const std::int32_t token : tokens)
        text += token == 1 ? '<' : token == 2 ? '>' : static_cast<char>(token - ByteTokenizer::first);
      all.push_back(text);
    }
    return all;
  }
  std::vector<std::string> documents() const { return documents(settings_.output); }

  std::filesystem::path folder_;
  Settings settings_;
  Services around_;
  std::atomic<int> encoded_ = 0;
  int die_at_ = 0;
};

}  // namespace holdfast::corpus
