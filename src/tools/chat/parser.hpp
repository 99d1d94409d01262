#pragma once
#include <string_view>

#include "src/tools/chat/syntax.hpp"

namespace holdfast::chat {

/// A template's source as a tree. Throws Error (usage) with the place of what is wrong or not understood:
/// unknown statements, filters and tests among it.
Body parse(std::string_view source);

}  // namespace holdfast::chat
