// holdfast-tool: the verbs that need heavy libraries (HDF5, SentencePiece). `holdfast VERB` executes it, so
// it speaks as holdfast does.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "src/base/error.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/verbs.hpp"

namespace {

int exit_of(holdfast::Exit exit) { return static_cast<int>(exit); }

}  // namespace

int main(int argc, char** argv) {
  using holdfast::Exit;
  CLI::App app("Holdfast's tools for data, checkpoints and models", "holdfast");
  app.require_subcommand(1);
  int exit_code = 0;
  holdfast::tool::add_data(app, exit_code);
  holdfast::tool::add_ckpt(app, exit_code);
  holdfast::tool::add_model_verbs(app, exit_code);
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "holdfast: %s. See `holdfast --help`\n", error.what());
    return exit_of(Exit::usage);
  } catch (const holdfast::Error& error) {
    std::fprintf(stderr, "holdfast: %s\n", error.what());
    return exit_of(error.exit());
  } catch (const holdfast::tool::Interrupted& interrupted) {
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: %s (internal error)\n", error.what());
    return exit_of(Exit::runtime);
  }
}
