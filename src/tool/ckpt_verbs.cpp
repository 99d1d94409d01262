#include <iostream>
#include <memory>
#include <string>

#include "src/tool/ckpt.hpp"
#include "src/tool/verbs.hpp"

namespace holdfast::tool {

void add_ckpt(CLI::App& app, int& exit_code) {
  struct Options {
    std::string path;
    bool json = false;
  };
  CLI::App* ckpt = app.add_subcommand("ckpt", "List, show and verify checkpoints")->require_subcommand(1);
  const auto verb = [&](const char* name, const char* help, bool has_json) {
    auto options = std::make_shared<Options>();
    CLI::App* command = ckpt->add_subcommand(name, help);
    command->add_option("path", options->path, "A run directory, a folder of checkpoints, or one checkpoint")
        ->required()
        ->type_name("PATH");
    if (has_json) command->add_flag("--json", options->json, "Print JSON");
    return std::pair(command, options);
  };
  const auto [ls, ls_options] = verb("ls", "List the committed checkpoints, newest first", true);
  ls->callback([&exit_code, o = ls_options] { exit_code = ckpt_ls(o->path, o->json, std::cout); });
  const auto [show, show_options] = verb("show", "Tensors, shapes, digests and facts of a checkpoint", true);
  show->callback([&exit_code, o = show_options] { exit_code = ckpt_show(o->path, o->json, std::cout); });
  const auto [verify, verify_options] =
      verb("verify", "Check every byte; exit code 1 when anything is damaged", false);
  verify->callback([&exit_code, o = verify_options] { exit_code = ckpt_verify(o->path, std::cout); });
}

}  // namespace holdfast::tool
