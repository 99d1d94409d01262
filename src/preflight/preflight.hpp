#pragma once
// Looks at all that a job will need before it is submitted. What ranks refuse when they start, they refuse
// with the functions that are called here, and so in the same words.
#include "src/preflight/checks.hpp"

namespace holdfast::preflight {

/// Every check that concerns this job. Headers and manifests are read, no values; nothing is written.
void look_at(const Subject& subject, Problems& problems);

}  // namespace holdfast::preflight
