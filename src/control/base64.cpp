#include "src/control/base64.hpp"

#include <sodium.h>

#include <algorithm>

namespace holdfast::control {

std::string to_base64(std::string_view bytes) {
  std::string text(sodium_base64_encoded_len(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                    bytes.size(), sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // its terminating zero
  return text;
}

bool from_base64(std::string_view text, std::size_t max_bytes, std::string& bytes) {
  std::size_t size = 0;
  bytes.resize(std::min(max_bytes, text.size() / 4 * 3));
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                        text.size(), nullptr, &size, nullptr, sodium_base64_VARIANT_ORIGINAL) != 0)
    return false;
  bytes.resize(size);
  return true;
}

}  // namespace holdfast::control
