#pragma once
// Recognises signs of the node in lines of the kernel's log. A program can put words into such a line by the
// name of a process or a file: they are no signs (signs.hpp: Writer). Pure.
#include <optional>
#include <string>

#include "src/control/message.hpp"

namespace holdfast::launcher {

/// `line`: the text alone, without priority and time. Nothing for lines that explain no failure. The sign's
/// age is 0, its code the Xid or the process that was killed.
std::optional<control::Sign> sign_of_kernel_line(const std::string& line);

}  // namespace holdfast::launcher
