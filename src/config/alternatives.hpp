#pragma once
// Settings of which a job gives one: steps or epochs, the warmup in steps or as a part of the run.
#include "src/base/errors.hpp"
#include "src/config/load.hpp"

namespace holdfast::config {

/// If two settings say the same, the one counts that takes precedence: a flag's before the
/// environment's, that before the file's. The other becomes 0. Refuses two that come from one place, but for
/// a `resolved` file: it has both, the one computed from the other.
void settle_alternatives(Loaded& loaded, bool resolved, ErrorList& refused);
/// `setting` is such a one that does not count, and is 0.
bool is_replaced(const Loaded& loaded, const std::string& setting);

}  // namespace holdfast::config
