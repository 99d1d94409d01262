#pragma once
// What a launcher's options and accelerate's file of options say, and what is left for a rank to run.
//
// accelerate tells the script what it decided by variables. Those of one variable for an option are set in
// rank.environment; what takes many of them, with defaults that differ from version to version (FSDP,
// DeepSpeed, Megatron-LM), is refused.
#include <cstddef>
#include <string>

#include "launcher/job/launcher_call.hpp"
#include "launcher/job/launcher_table.hpp"
#include "launcher/job/other_launchers.hpp"

namespace holdfast::launcher::others {

struct Script {
  Words words;  ///< its name and its arguments
  bool module = false, no_python = false, no_rank = false;
};

/// Reads the options of the launcher from words[at] on into `out`, then the script and all that is its own.
/// accelerate's file of options is read, too: the one that is named, or the one that `accelerate config`
/// wrote. Throws Error (usage) for what cannot be kept.
Script read_options(const Words& words, std::size_t at, const Launcher& launcher, const Outside& outside,
                    LauncherCommand& out);

}  // namespace holdfast::launcher::others
