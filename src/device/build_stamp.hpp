#pragma once
// Program and module share classes, not a stable binary interface: they must come from the same build.
#include <string_view>

namespace holdfast::device {

/// Version, sanitizers and a hash of the headers that both sides include. Ends with a zero.
std::string_view build_stamp();

}  // namespace holdfast::device
