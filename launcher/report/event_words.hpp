#pragma once
// Events in words, for people. Pure.
#include <string>

#include "launcher/record/events.hpp"

namespace holdfast::launcher::report {

/// A sentence without its end; empty: the event is for programs. It may hold words of other programs, so
/// whoever prints it escapes it.
std::string in_words(const Event& event);

}  // namespace holdfast::launcher::report
