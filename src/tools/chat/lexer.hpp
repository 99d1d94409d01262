#pragma once
// A template cut into what stands between the tags and the words inside them, with Jinja's rules for white
// space as transformers sets them: trim_blocks and lstrip_blocks on, keep_trailing_newline off.
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::chat {

/// Both from 1; the column counts bytes.
struct Position {
  int line = 1, column = 1;
};

struct Token {
  enum class Kind {
    data,
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Kind kind = Kind::end;
  std::string text;  ///< of a string: its value
  Position at;
};

/// Error (usage): "the chat template is wrong in line L, column C (why)".
[[noreturn]] void refuse(Position at, const std::string& why);

/// `source` is UTF-8. Ends with a token `end`. Throws Error (usage) with the place of what is wrong.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace holdfast::chat
