#pragma once
// The verbs of `holdfast ckpt` that write: conversions, and what stays of old checkpoints. Paths as in
// ckpt.hpp. All return Exit::done or throw Error; files appear under their names only when they are whole.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace holdfast::tool {

struct ExportOrder {
  /// `out`: a folder, or, when it ends in .safetensors or `single` is set, one file.
  std::filesystem::path path, out;
  bool single = false;
  bool polyglot = false;  ///< one file that is safetensors and HDF5 at once
  /// fp32, bf16 or fp16; "": as it was imported, or with `merge` as the base is; or fp32.
  std::string dtype;
  std::int64_t shard_bytes = 5'000'000'000;  ///< of each file of a folder, at most
  /// Folder whose tokenizer goes along, or a SentencePiece model; empty: the one that made the run's tokens,
  /// with `merge` the one that lies beside the adapters or the base, where there is one.
  std::filesystem::path tokenizer;
  bool merge = false;          ///< `path` holds adapters: the model with them added. It may be a PEFT folder
  std::filesystem::path base;  ///< what they are added to; empty: the weights that they name
};
/// A model as a Hugging Face folder or file; adapters as a PEFT folder.
int ckpt_export(const ExportOrder& order, std::ostream& out);

struct DcpOrder {
  std::filesystem::path path, out;  ///< `out`: a folder that is not there yet
  std::string dtype;                ///< of the weights: fp32, bf16 or fp16; "": as they are
  bool weights_only = false;        ///< without the moments
};
/// A folder for torch.distributed.checkpoint: this process becomes python3 with holdfast.torch and
/// export-dcp, whose exit code counts. Returns only by an Error, when there is no python3.
int ckpt_export_dcp(const DcpOrder& order);

struct ImportFiles {
  std::filesystem::path source, out;
  std::string model;  ///< a name in configs/models, or a path to a model file; "": the config.json beside it
  bool bf16_moments = false;  ///< as [precision] moments will be
};
int ckpt_import(const ImportFiles& order, std::ostream& out);

int ckpt_consolidate(const std::filesystem::path& path, const std::filesystem::path& target,
                     std::ostream& out);

/// index.h5 in the folder of the checkpoint, through which others see whole tensors.
int ckpt_index(const std::filesystem::path& path, std::ostream& out);

struct PruneOrder {
  std::filesystem::path path;
  std::optional<int> keep;  ///< absent: as the run's settings say
  std::optional<double> archive_h;
  bool dry_run = false;
  bool json = false;
  bool force = false;  ///< although a job owns the run directory that has not said that it is over
  /// In which files of other programs are removed, beside the run directory. What the run's settings say of
  /// it may be somebody else's word.
  std::vector<std::filesystem::path> files_in = {};
};
/// Removes what retention would, and remains of saves that were never committed. Refuses (usage) while a run
/// may be alive.
int ckpt_prune(const PruneOrder& order, std::ostream& out);

/// `step`: of a folder; absent: the newest sound one.
int ckpt_pin(const std::filesystem::path& path, std::optional<std::int64_t> step, bool unpin,
             std::ostream& out);

}  // namespace holdfast::tool
