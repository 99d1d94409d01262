#pragma once
// Whether a command, or a line of a shell's text, starts a launcher of ranks, and which one.
//
// A launcher is looked for at the begin of the command and behind programs that run another one (env, nohup,
// uv run, ...). A shell's text is read roughly: what stands between its operators, without quotes.
#include <cstddef>
#include <string>
#include <vector>

#include "launcher/job/launcher_table.hpp"

namespace holdfast::launcher::others {

using Words = std::vector<std::string>;

struct Found {
  const Launcher* launcher = nullptr;
  const RefusedProgram* refused = nullptr;
  std::size_t begin = 0, end = 0;  ///< of the words that call it, its interpreter among them
  std::string name = "";
  explicit operator bool() const { return launcher || refused; }
};

/// The launcher that a command calls, behind assignments and programs that run another one.
Found called_by(const Words& words);
/// The first launcher that a shell's text calls, and the words of that command.
Found called_in_text(const std::string& text, Words& where);

std::string base(const std::string& word);  ///< of a path, its last name
bool is_python(const std::string& word);
bool is_assignment(const std::string& word);
/// The text of `sh -c TEXT`, or nothing.
const std::string* shell_text(const Words& words);
/// The script that a shell, or the kernel, runs; "": none.
std::string script_in(const Words& words);

}  // namespace holdfast::launcher::others
