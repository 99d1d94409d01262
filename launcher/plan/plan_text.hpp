#pragma once
// The plan for people: a page for 4 nodes and for 127, since neighbours are written as ranges.
#include <string>

#include "launcher/plan/plan.hpp"

namespace holdfast::launcher {

/// Ends with a newline; lines of at most 110 characters, apart from long names.
std::string to_text(const Plan& plan);
/// One line for each rank.
std::string rank_table(const Plan& plan);

}  // namespace holdfast::launcher
