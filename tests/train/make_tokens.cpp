// make_tokens FILE VOCABULARY COUNT: a token file for scripts that need one and no text.
#include <cstdio>
#include <cstdlib>

#include "src/data/token_file.hpp"
#include "tests/support/learnable_tokens.hpp"

int main(int argc, char** argv) {
  const int vocabulary = argc == 4 ? std::atoi(argv[2]) : 0, count = argc == 4 ? std::atoi(argv[3]) : 0;
  if (vocabulary < 1 || count < 2) {
    std::fprintf(stderr, "usage: make_tokens FILE VOCABULARY COUNT\n");
    return 2;
  }
  try {
    holdfast::data::TokenFileWriter writer(argv[1], vocabulary);
    writer.append(holdfast::learnable_tokens(vocabulary, count));
    writer.finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_tokens: %s\n", error.what());
    return 1;
  }
}
