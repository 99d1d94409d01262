// The card beside a token file, by the verb that shows it.
#include <filesystem>
#include <iostream>
#include <sstream>
#include <vector>

#include "src/base/error.hpp"
#include "src/data/token_file.hpp"
#include "src/tools/cli/data_show.hpp"
#include "tests/fuzz/scratch.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {
namespace {

/// Takes what is printed, as long as it lives.
class NoOutput {
 public:
  NoOutput() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  ~NoOutput() { std::cout.rdbuf(before_); }
  NoOutput(const NoOutput&) = delete;
  NoOutput& operator=(const NoOutput&) = delete;

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

struct TokensWithCard {
  Scratch scratch;
  std::filesystem::path path = scratch.path() / "tokens.bin";
  std::string identity;
  TokensWithCard() {
    data::TokenFileWriter writer(path, 512);
    writer.append(std::vector<std::int32_t>{1, 2, 3, 4});
    writer.finish();
    identity = data::TokenFile::open(path, 0).identity();
  }
};

}  // namespace

void try_card(std::string_view bytes) {
  static const TokensWithCard tokens;
  std::string card(bytes);
  constexpr std::string_view its_identity = "IDENTITY";
  if (const auto at = card.find(its_identity); at != std::string::npos)
    card.replace(at, its_identity.size(), tokens.identity);
  tokens.scratch.write("tokens.bin.card.json", card);
  const NoOutput none;
  for (const bool json : {false, true}) {
    try {
      tool::run_show({.file = tokens.path, .json = json});
    } catch (const Error&) {
    }
  }
}

}  // namespace holdfast::fuzz
