#pragma once
// What a node needs of shared storage to go on while that does not answer, in the node's memory: the programs
// with their libraries, of which else a page may be missing at any moment, and the settings of the run, for
// an agent that starts again.
#include <filesystem>

#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Copies them, and compares the copies with what was read. Returns the path of the copy of this program;
/// this program itself when it lies on a file system of the node, when it is the copy, and when there is no
/// room (which is logged). Libraries that do not lie below the folder of the programs stay where they are.
/// Throws Error when the settings cannot be read.
std::filesystem::path make_resident(const Scratch& scratch, const RunDir& run);

}  // namespace holdfast::launcher
