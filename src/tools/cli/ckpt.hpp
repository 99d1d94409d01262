#pragma once
// What `holdfast ckpt ls`, `show`, `verify` and `diff` print: they look, and change nothing. `path` is a
// checkpoint, a checkpoints folder or a run directory; a path that is none of these is an Error (usage).
#include <filesystem>
#include <ostream>

namespace holdfast::tool {

/// One line per committed checkpoint, newest first; damaged ones say why, pinned ones are marked. Then the
/// local level of this machine, if it is there. Always Exit::done.
int ckpt_ls(const std::filesystem::path& path, bool json, std::ostream& out);
/// One checkpoint (of a folder: the newest sound one): facts, levels, digests, every tensor; with `json` the
/// shards too.
int ckpt_show(const std::filesystem::path& path, bool json, std::ostream& out);
/// Every byte of a checkpoint (of a folder: of all committed ones). A line per checkpoint and per problem;
/// Exit::runtime when there is a problem. Progress goes to stderr.
int ckpt_verify(const std::filesystem::path& path, bool json, std::ostream& out);

struct DiffOrder {
  std::filesystem::path before, after;
  bool values = false;  ///< read the tensors whose digests differ, and say by how much
  bool json = false;
};
/// What differs between two checkpoints. Exit::done when their states are the same, bit for bit (their facts
/// may differ), else Exit::runtime.
int ckpt_diff(const DiffOrder& order, std::ostream& out);

}  // namespace holdfast::tool
