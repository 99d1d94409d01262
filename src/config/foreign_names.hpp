#pragma once
// What other launchers and trainers call our settings, for people who come from them.
#include <string>
#include <vector>

namespace holdfast::config {

struct ForeignName {
  const char* name;    ///< without dashes and underscores, in lower case: "maxrestarts"
  const char* whose;   ///< "torchrun", "NeMo", "Hugging Face"
  const char* answer;  ///< the settings to use instead
};
const std::vector<ForeignName>& foreign_names();
/// "torchrun's nnodes is here ..." and the settings to use instead, or "" for a name that we do not know.
/// Spelling of dashes, underscores and capitals does not count.
std::string foreign_suggestion(const std::string& key);

}  // namespace holdfast::config
