// raise_schema MANIFEST VERSION: as a later Holdfast might have written it, under a digest that matches.
#include <cstdlib>
#include <iostream>

#include "tests/checkpoint/fixture.hpp"

int main(int argc, char** argv) {
  namespace testing = holdfast::checkpoint::testing;
  if (argc != 3) {
    std::cerr << "raise_schema MANIFEST VERSION\n";
    return 2;
  }
  const std::string text = testing::read_file(argv[1]);
  testing::write_file(argv[1], testing::with_schema_version(text, std::atoi(argv[2])));
}
