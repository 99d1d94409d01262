#include "src/tool/verbs.hpp"

namespace holdfast::tool {

void add_ckpt(CLI::App&, int&) {}  // a verb exists when it works

}  // namespace holdfast::tool
