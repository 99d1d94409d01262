// The command line of `holdfast ckpt`, in three groups: verbs that look, that convert, and that decide what
// is kept. add() declares one verb. Its options are in a struct that lives as long as the command, and its
// callback, which CLI11 calls once all is parsed, hands them to a function of ckpt.hpp or ckpt_change.hpp and
// sets the exit code. That function does the work.
//
// A path that may name a run goes through with_run_found(). Options that exclude or need each other are
// declared so, and CLI11 refuses them before the callback. Export, import and consolidate call
// note_interrupts() first, so that Ctrl-C cleans up; ckpt_export_dcp() becomes another program, and does not.
// A new verb needs an add() in its group.
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "src/tools/cli/ckpt.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/named_run.hpp"
#include "src/tools/cli/verbs.hpp"

namespace holdfast::tool {
namespace {

constexpr const char* what_paths_are =
    "A run (its directory, its name in runs/, or its job's id), a folder of checkpoints, or one checkpoint; "
    "RUN/best is the one with the best held-out loss";

/// A subcommand with options in a struct of its own. `act` is called once they are parsed.
template <class Options, class AddOptions, class Act>
void add(CLI::App& ckpt, int& exit_code, const char* name, const char* help, AddOptions add_options,
         Act act) {
  auto options = std::make_shared<Options>();
  CLI::App* command = ckpt.add_subcommand(name, help);
  add_options(*command, *options);
  command->callback([&exit_code, options, act] { exit_code = act(*options); });
}

template <class Path>
CLI::Option* add_path(CLI::App& command, const char* name, Path& path, const char* help) {
  return command.add_option(name, path, help)->required()->type_name("PATH");
}

template <class Path>
void add_run_path(CLI::App& command, const char* name, Path& path, const char* help = what_paths_are) {
  add_path(command, name, path, help)->transform(with_run_found);
}

struct LookOptions {
  std::filesystem::path path;
  bool json = false;
};

void add_look(CLI::App& command, LookOptions& options) {
  add_run_path(command, "path", options.path);
  command.add_flag("--json", options.json, "Print JSON");
}

void add_looking(CLI::App& ckpt, int& exit_code) {
  add<LookOptions>(ckpt, exit_code, "ls", "List the committed checkpoints, newest first, and the local level",
                   add_look, [](const auto& o) { return ckpt_ls(o.path, o.json, std::cout); });
  add<LookOptions>(ckpt, exit_code, "show",
                   "Show tensors, shapes, types, levels, digests and facts of a checkpoint", add_look,
                   [](const auto& o) { return ckpt_show(o.path, o.json, std::cout); });
  add<LookOptions>(ckpt, exit_code, "verify", "Check every byte; exit code 1 when anything is damaged",
                   add_look, [](const auto& o) { return ckpt_verify(o.path, o.json, std::cout); });
  add<DiffOrder>(
      ckpt, exit_code, "diff",
      "Show what differs between two checkpoints; exit code 0 when their states are the same",
      [](CLI::App& command, DiffOrder& o) {
        add_run_path(command, "before", o.before);
        add_run_path(command, "after", o.after);
        command.add_flag("--values", o.values, "Read the tensors that differ, and show by how much");
        command.add_flag("--json", o.json, "Print JSON");
      },
      [](const auto& o) { return ckpt_diff(o, std::cout); });
}

void add_converting(CLI::App& ckpt, int& exit_code) {
  struct Export : ExportOrder {
    std::filesystem::path file, dcp;
    bool weights_only = false;
  };
  add<Export>(
      ckpt, exit_code, "export",
      "Write the model as a Hugging Face folder, or its weights as a safetensors file; adapters as a PEFT "
      "folder; the whole state for torch.distributed.checkpoint",
      [](CLI::App& command, Export& o) {
        add_run_path(command, "path", o.path);
        auto* const out =
            command.add_option("out", o.out, "The folder to write; or a file, when it ends in .safetensors")
                ->type_name("PATH");
        auto* const file =
            command.add_option("--safetensors", o.file, "The file to write, whatever its name")
                ->type_name("PATH")
                ->excludes(out);
        auto* const dcp =
            command
                .add_option("--dcp", o.dcp,
                            "The folder to write, for torch.distributed.checkpoint; needs a python3 with "
                            "torch")
                ->type_name("DIR")
                ->excludes(out)
                ->excludes(file);
        command.add_flag("--weights-only", o.weights_only, "With --dcp: without the moments")->needs(dcp);
        auto* const polyglot = command.add_flag("--polyglot", o.polyglot,
                                                "Write one file that is valid safetensors and valid HDF5");
        command
            .add_option("--dtype", o.dtype,
                        "fp32, bf16 or fp16 (rounded to nearest, ties to even). Default: as imported, with "
                        "--merge as the base, else fp32")
            ->type_name("TYPE")
            ->transform(CLI::CheckedTransformer(std::map<std::string, std::string>{
                {"fp32", "fp32"}, {"f32", "fp32"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {"f16", "fp16"}}));
        polyglot->excludes(dcp);
        command.add_option("--shard-size", o.shard_bytes, "Largest size of a file in a folder (5GB)")
            ->type_name("SIZE")
            ->transform(CLI::AsSizeValue(true))
            ->check(CLI::PositiveNumber)
            ->excludes(dcp);
        command
            .add_option(
                "--tokenizer", o.tokenizer,
                "Folder whose tokenizer is copied, or a SentencePiece model (default: what made the run's "
                "tokens)")
            ->type_name("PATH")
            ->excludes(dcp);
        auto* const merge = command.add_flag(
            "--merge", o.merge,
            "Write the whole model of adapters (also of a PEFT folder): their base with them added");
        merge->excludes(dcp);
        command.add_option("--base", o.base, "With --merge: the base, if it is not where the adapters say")
            ->type_name("PATH")
            ->needs(merge);
      },
      [](Export& o) {
        if (!o.dcp.empty()) return ckpt_export_dcp({o.path, o.dcp, o.dtype, o.weights_only});
        note_interrupts();
        if (!o.file.empty()) {
          o.out = o.file;
          o.single = true;
        }
        return ckpt_export(o, std::cout);
      });
  struct Import : ImportFiles {
    std::string moments = "fp32";
  };
  add<Import>(
      ckpt, exit_code, "import", "Make a checkpoint of step 0 from safetensors, to start training from",
      [](CLI::App& command, Import& o) {
        add_path(command, "source", o.source,
                 "A .safetensors file, the .index.json of a sharded one, or a folder with either");
        add_path(command, "out", o.out, "A folder for the checkpoint, made when it is not there");
        command
            .add_option("--model", o.model,
                        "A name in configs/models, or a model file (default: the config.json beside it)")
            ->type_name("MODEL");
        command
            .add_option("--moments", o.moments,
                        "Type of the moments: that of precision.moments in the later run (fp32)")
            ->check(CLI::IsMember({"fp32", "bf16"}));
      },
      [](Import& o) {
        note_interrupts();
        o.bf16_moments = o.moments == "bf16";
        return ckpt_import(o, std::cout);
      });
  struct Consolidate {
    std::filesystem::path path, out;
  };
  add<Consolidate>(
      ckpt, exit_code, "consolidate", "Write one plain HDF5 file with all tensors whole",
      [](CLI::App& command, Consolidate& o) {
        add_run_path(command, "path", o.path);
        add_path(command, "out", o.out, "The file to write");
      },
      [](const auto& o) {
        note_interrupts();
        return ckpt_consolidate(o.path, o.out, std::cout);
      });
  add<LookOptions>(
      ckpt, exit_code, "index",
      "Make index.h5 in a checkpoint: its tensors whole, for h5py and other HDF5 tools",
      [](CLI::App& command, LookOptions& o) { add_run_path(command, "path", o.path); },
      [](const auto& o) { return ckpt_index(o.path, std::cout); });
}

void add_keeping(CLI::App& ckpt, int& exit_code) {
  add<PruneOrder>(
      ckpt, exit_code, "prune", "Remove old checkpoints as [checkpoint] keep and archive_h say",
      [](CLI::App& command, PruneOrder& o) {
        add_run_path(command, "path", o.path,
                     "A run (its directory, its name in runs/, or its job's id), or a folder of checkpoints");
        command.add_option("--keep", o.keep, "Newest checkpoints to keep")->check(CLI::Range(1, 1 << 30));
        command.add_option("--archive-h", o.archive_h, "Keep the first of every so many hours; 0: none")
            ->check(CLI::NonNegativeNumber);
        command
            .add_option(
                "--files-in", o.files_in,
                "Of other programs' checkpoints, remove files below this folder, too, and not only those in "
                "the run directory; may be repeated")
            ->type_name("FOLDER")
            ->check(CLI::ExistingDirectory);
        command.add_flag("--dry-run", o.dry_run, "Print what would be removed, and change nothing");
        command.add_flag("--json", o.json, "Print JSON");
        command.add_flag("--force", o.force, "Also while a job may still own the run");
      },
      [](const auto& o) { return ckpt_prune(o, std::cout); });
  struct Pin {
    std::filesystem::path path;
    std::optional<std::int64_t> step;
  };
  for (const bool unpin : {false, true})
    add<Pin>(
        ckpt, exit_code, unpin ? "unpin" : "pin",
        unpin ? "Let retention take a checkpoint again" : "Keep a checkpoint whatever retention says",
        [](CLI::App& command, Pin& o) {
          add_run_path(command, "path", o.path);
          command.add_option("--step", o.step, "In a folder: this step instead of the newest sound one")
              ->check(CLI::NonNegativeNumber);
        },
        [unpin](const auto& o) { return ckpt_pin(o.path, o.step, unpin, std::cout); });
}

}  // namespace

void add_ckpt(CLI::App& app, int& exit_code) {
  CLI::App* ckpt =
      app.add_subcommand("ckpt", "Show, verify and convert checkpoints, and choose which are kept")
          ->require_subcommand(1);
  add_looking(*ckpt, exit_code);
  add_converting(*ckpt, exit_code);
  add_keeping(*ckpt, exit_code);
}

}  // namespace holdfast::tool
