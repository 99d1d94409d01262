# cmake -D HEADERS=a;b -D PREFIX=... -D OUTPUT=file.cpp -P BuildStamp.cmake: defines device::build_stamp().
foreach(header IN LISTS HEADERS)
  file(SHA256 ${header} hash)
  get_filename_component(name ${header} NAME)
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 all "${all}")
string(SUBSTRING ${all} 0 16 all)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[#include "src/device/build_stamp.hpp"

namespace holdfast::device {
std::string_view build_stamp() { return "@PREFIX@, interfaces @all@"; }
}  // namespace holdfast::device
]])
