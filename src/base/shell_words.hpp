#pragma once
// Words of a command line, split as a POSIX shell splits them. Nothing is expanded, and no shell is asked.
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

/// Blanks end a word; quotes and backslashes as in POSIX (XCU 2.2). Throws Error (usage) when a quote is not
/// closed, and for what only a shell can do: ; & | < > ( ) ` and $ outside single quotes.
std::vector<std::string> shell_words(std::string_view text);

}  // namespace holdfast
