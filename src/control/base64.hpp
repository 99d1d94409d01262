#pragma once
// Bytes as text, RFC 4648 with padding.
#include <string>
#include <string_view>

namespace holdfast::control {

std::string to_base64(std::string_view bytes);
/// False when `text` is not base64 or has more than `max_bytes`; `bytes` is then unspecified.
bool from_base64(std::string_view text, std::size_t max_bytes, std::string& bytes);

}  // namespace holdfast::control
