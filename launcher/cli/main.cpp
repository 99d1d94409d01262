// `holdfast`: the command line and the agent. Links no MPI, no CUDA and no HDF5, and starts in milliseconds.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "launcher/cli/verbs.hpp"
#include "src/base/errors.hpp"
#include "src/base/log.hpp"
#include "src/base/printable.hpp"

namespace holdfast::launcher {
namespace {

int run(int argc, char** argv) {
  const PrintableStreams printable_streams;
  try {
    return run_command_line({argv + 1, argv + argc});
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

}  // namespace
}  // namespace holdfast::launcher

/// Threads that wait for storage may still run (within.hpp): the destructors of static objects would destroy
/// what they use.
int main(int argc, char** argv) {
  const int code = holdfast::launcher::run(argc, argv);
  holdfast::log::flush(std::chrono::seconds(2));
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}
