#include "src/base/lock_pages.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "src/base/files.hpp"

namespace holdfast {

bool lock_all_pages() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return false;
  // First what there is, which reads it; then what is to come, as soon as it is touched: a whole stack of a
  // thread is not.
  return ::mlockall(MCL_CURRENT) == 0 && ::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
}

void lock_code_on_shared_storage() {
  std::map<std::string, bool> on_node;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0;
    char may[5] = {};
    const auto path = line.find('/');
    if (path == std::string::npos ||
        std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, may) != 3 || may[2] != 'x')
      continue;
    const std::string file = line.substr(path);
    if (!on_node.contains(file)) on_node[file] = files::on_node(file);
    if (!on_node[file]) ::mlock(reinterpret_cast<const void*>(begin), end - begin);
  }
}

}  // namespace holdfast
