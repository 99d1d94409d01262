#pragma once
// `holdfast spawn HOST COMMAND...`: mpirun uses it as its remote shell. It asks the agent on HOST to run the
// command, and ends when the command ends.
#include <string>
#include <vector>

namespace holdfast::launcher {

/// The command's exit code; Exit::transient when the agent does not answer within 10 s or vanishes.
int remote_start(const std::string& host, const std::vector<std::string>& command);

}  // namespace holdfast::launcher
