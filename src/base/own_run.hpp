#pragma once
// Whose a run directory is. What lies in it decides which program is started and where is written, as the
// user who starts the job or its agents: so nobody else may have made or changed it.
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "src/base/run_dir.hpp"

namespace holdfast {

/// Another user than this one and root may write it, by its mode. The group of this user's name that nobody
/// else is in, as distributions give one to each user, counts for nobody.
bool others_can_write(const struct stat& facts);

/// Throws Error (usage), with what to do, unless the run directory and what run and agents read of it belong
/// to this user (or root), nobody else can write there, and none of it, nor what lies in logs/, is a symbolic
/// link. `checkpoints` and the directory itself may be links. Files that do not exist are no fault.
void require_own_run(const RunDir& run);

/// A sentence: in which folder above the run directory another user could put something else in its place;
/// "": in none.
std::string who_could_replace(const std::filesystem::path& run_dir);

}  // namespace holdfast
