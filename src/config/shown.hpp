#pragma once
// Settings as others than the owner of a run may read them.
#include <string_view>

#include "src/base/run_dir.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// Stands where a value is not shown.
constexpr const char* not_shown = "(not shown)";

/// A user may have put a password or a token into its value: environment, command lines and options of other
/// programs. Pure.
bool may_hold_secrets(std::string_view key);
/// The same settings with `not_shown` in place of such values. Of variables the names stay, and of a command
/// its program. Pure.
RunConfig without_secrets(RunConfig config);

/// Writes settings.toml for the group, then config.toml for the owner.
void write_settings(const RunDir& run, const RunConfig& config);
/// config.toml where this user may read it, else settings.toml. Throws Error where neither can be read, or
/// holds what settings do not allow.
RunConfig read_settings(const RunDir& run);

}  // namespace holdfast::config
