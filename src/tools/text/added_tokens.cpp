#include "src/tools/text/added_tokens.hpp"

#include "src/base/error.hpp"

namespace holdfast::text {

void AddedTokens::add(std::string_view content, Token id, bool special) {
  expects(!content.empty(), "an added token has content");
  std::size_t node = 0;
  for (std::size_t i = 0; i < content.size(); ++i) {
    std::size_t next = i == 0 ? roots_[static_cast<unsigned char>(content[0])] : 0;
    if (i > 0 && nodes_[node].children.contains(content[i])) next = nodes_[node].children[content[i]];
    if (next == 0) {
      next = nodes_.size();
      nodes_.emplace_back();
      (i == 0 ? roots_[static_cast<unsigned char>(content[0])] : nodes_[node].children[content[i]]) = next;
    }
    node = next;
  }
  nodes_[node].id = id;
  nodes_[node].special = special;
}

}  // namespace holdfast::text
