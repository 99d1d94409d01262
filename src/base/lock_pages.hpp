#pragma once
// Keeps pages of this process in memory: one that is not there is read from the file system of its program or
// library, and a process that needs it waits as long as that takes.

namespace holdfast {

/// All pages of this process, present and future. Where the limit of locked memory (ulimit -l) is not
/// unlimited nothing is locked, since later allocations would fail. Returns whether they are.
bool lock_all_pages();

/// The code of the program and of all libraries that are loaded now and do not lie on a file system of this
/// node, as far as the limit allows. Reads what is missing.
void lock_code_on_shared_storage();

}  // namespace holdfast
