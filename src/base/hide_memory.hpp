#pragma once
#include <sys/prctl.h>

namespace holdfast {

/// For processes that keep the secret of a run: their memory gets into no core dump, and other processes of
/// this user can neither attach to them nor read what they have open and their environment. Ends with exec;
/// processes that launch() (subprocess.hpp) starts are as ever.
inline void hide_memory() { ::prctl(PR_SET_DUMPABLE, 0); }

}  // namespace holdfast
