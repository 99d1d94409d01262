#pragma once
// SLURM's notation for many names: "dgx[001-003,006],login". It is parsed here and not by a tool, so that
// plans of thousands of ranks need no cluster.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::slurm {

constexpr std::size_t max_hosts = 65536;  ///< of one list; the limit of SLURM, too

/// The names in the order written, repeats kept: "dgx[001-003,006]" gives dgx001 dgx002 dgx003 dgx006.
/// Several brackets in one name count like digits, the last one fastest. An empty text is an empty list.
/// Throws Error (usage), saying where, on anything that is not a hostlist, on names with characters other
/// than letters, digits, '.', '_' and '-', and on more than max_hosts names.
std::vector<std::string> expand(std::string_view list);

/// The short notation: neighbours that differ in their last digits share a bracket. Order and repeats are
/// kept, so expand(compress(names)) == names for every list of names that expand() could have given.
std::string compress(const std::vector<std::string>& names);

}  // namespace holdfast::slurm
