// The tokens of a text as 32-bit numbers on stdout, for comparison with other libraries
// (scripts/proof/tokenizers.sh) and for timing.
//
//   text_encode TOKENIZER FILE as-text|parsed   tokens of the whole file
//   text_encode TOKENIZER FILE decode           the bytes of the tokens in FILE
//   text_encode TOKENIZER FILE time BYTES       MB/s over documents of BYTES, on one thread
#include <chrono>
#include <cstring>
#include <iostream>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/text/tokenizer.hpp"
#include "src/tools/text/unicode.hpp"

namespace {

using namespace holdfast;

double megabytes_per_second(const text::Tokenizer& tokenizer, std::string_view text, std::size_t document) {
  std::vector<text::Token> tokens;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t first = 0, end = 0; first < text.size(); first = end) {
    end = std::min(text.size(), first + document);
    while (end < text.size() && utf8::continues(text[end])) ++end;
    tokens.clear();
    tokenizer.encode(text.substr(first, end - first), tokens);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(text.size()) / 1e6 / took.count();
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 3)
    throw Error(Exit::usage, "text_encode TOKENIZER FILE as-text|parsed|decode|time [BYTES]");
  const auto tokenizer = text::open_tokenizer(words[0]);
  const std::string file = files::read_text(words[1]);
  if (words[2] == "time") {
    std::cout << megabytes_per_second(*tokenizer, file, std::stoul(words.at(3))) << "\n";
    return 0;
  }
  std::vector<text::Token> tokens;
  if (words[2] == "decode") {
    tokens.resize(file.size() / sizeof(text::Token));
    std::memcpy(tokens.data(), file.data(), tokens.size() * sizeof(text::Token));
    std::cout << tokenizer->decode(tokens, true);
    return 0;
  }
  tokenizer->encode(file, tokens, words[2] == "parsed" ? text::Specials::parsed : text::Specials::as_text);
  std::cout.write(reinterpret_cast<const char*>(tokens.data()),
                  static_cast<std::streamsize>(tokens.size() * sizeof(text::Token)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit());
  }
}
