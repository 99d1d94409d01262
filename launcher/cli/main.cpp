// `holdfast`: the command line and the agent. Links no MPI, no CUDA and no HDF5, and starts in milliseconds.
#include <iostream>

#include "launcher/cli/verbs.hpp"
#include "src/base/errors.hpp"
#include "src/base/printable.hpp"

int main(int argc, char** argv) {
  using namespace holdfast;
  const PrintableStreams printable_streams;
  try {
    return launcher::run_command_line({argv + 1, argv + argc});
  } catch (const Errors& e) {
    for (const Error& error : e.all()) std::cerr << "holdfast: " << error.what() << "\n";
    return static_cast<int>(e.exit());
  } catch (const Error& e) {
    std::cerr << "holdfast: " << e.what() << "\n";
    return static_cast<int>(e.exit());
  } catch (const std::exception& e) {
    std::cerr << "holdfast: internal error (" << e.what() << "). Please report it\n";
    return static_cast<int>(Exit::runtime);
  }
}
