// holdfast-tool: the verbs that need heavy libraries (HDF5, SentencePiece). `holdfast VERB` executes it, so
// it speaks as holdfast does.
#include <CLI/CLI.hpp>
#include <iostream>

#include "src/base/error.hpp"
#include "src/base/printable.hpp"
#include "src/command_line/complete.hpp"
#include "src/command_line/help.hpp"
#include "src/command_line/man_page.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/verbs.hpp"

namespace {

using namespace holdfast::command_line;

int exit_of(holdfast::Exit exit) { return static_cast<int>(exit); }

Candidates values_of(const std::string& type) {
  if (type == "FILE" || type == "PATH" || type == "MODEL") return {{}, Paths::files};
  if (type == "DIR" || type == "FOLDER" || type.starts_with("RUN") || type == "path" || type == "out")
    return {{}, Paths::folders};
  return {};
}

/// The lines for `words`, which stand behind "--".
std::string candidates(const CLI::App& app, std::vector<std::string> words) {
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  return lines_of(complete(app, words, values_of));
}

}  // namespace

int main(int argc, char** argv) {
  using holdfast::Exit;
  const holdfast::PrintableStreams printable_streams;
  CLI::App app("Holdfast's tools for data, checkpoints and models", "holdfast");
  app.formatter(holdfast::command_line::help_formatter(holdfast::command_line::help_width()));
  app.set_help_flag("-h,--help", "Print help");
  app.require_subcommand(1);
  int exit_code = 0;
  holdfast::tool::add_data(app, exit_code);
  holdfast::tool::add_ckpt(app, exit_code);
  holdfast::tool::add_model_verbs(app, exit_code);
  const std::string first = argc > 1 ? argv[1] : "";
  try {
    if (first == "complete" || first == "man") {  // asked by `holdfast complete` and `holdfast man`
      std::cout << (first == "man" ? man_verbs(app) : candidates(app, {argv + 2, argv + argc}));
      return 0;
    }
    refuse_unknown_verb(app, {argv + 1, argv + argc});
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::cerr << "holdfast: " << usage_error(app, {argv + 1, argv + argc}, error).what() << "\n";
    return exit_of(Exit::usage);
  } catch (const holdfast::Error& error) {
    std::cerr << "holdfast: " << error.what() << "\n";
    return exit_of(error.exit());
  } catch (const holdfast::tool::Interrupted& interrupted) {
    return 128 + interrupted.signal();
  } catch (const std::exception& error) {
    std::cerr << "holdfast: " << error.what() << " (internal error)\n";
    return exit_of(Exit::runtime);
  }
}
