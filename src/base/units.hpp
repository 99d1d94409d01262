#pragma once
// Sizes and durations as people read them, the same everywhere.
#include <concepts>
#include <string>

namespace holdfast {

/// Bytes in binary units: "512 B", "1.50 MiB", "161.7 GiB".
std::string size_text(double bytes);
std::string size_text(std::integral auto bytes) { return size_text(static_cast<double>(bytes)); }

/// "3.2 s", from 90 s on "2.5 min", from 90 min on "1.6 h".
std::string duration_text(double seconds);

}  // namespace holdfast
