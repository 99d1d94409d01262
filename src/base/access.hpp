#pragma once
// What this user may read, and in words what not: runs of colleagues.
#include <sys/types.h>

#include <filesystem>
#include <string>

namespace holdfast {

/// Its number, where it has no name.
std::string name_of_user(uid_t number);
/// False where its mode, or that of a folder on the way, forbids it; true also where nothing is there.
bool may_read(const std::filesystem::path& path);
/// Says whose it is, why this user may not read it, and what to ask for. Throws Error (usage).
[[noreturn]] void refuse_reading(const std::filesystem::path& path);
/// The name of the user to whom it belongs; empty: that cannot be told.
std::string owner_of(const std::filesystem::path& path);

}  // namespace holdfast
