#pragma once
// What docs/run-directory.md says of events: a table for each, from the list of its fields.
#include <string>

namespace holdfast::launcher {

/// Markdown, chapter by chapter: what stands between the page's two marks.
std::string event_tables();

}  // namespace holdfast::launcher
