#pragma once
// For tests that run on several ranks; main() is in mpi_main.cpp.
#include "src/comm/mpi_session.hpp"

namespace holdfast::tests {

/// The one of this program.
comm::MpiSession& session();

}  // namespace holdfast::tests
