#include "src/comm/communicator.hpp"

namespace holdfast::comm {

std::string broadcast_text(Communicator& group, std::string text, int root) {
  std::uint64_t bytes = text.size();
  group.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root);
  text.resize(bytes);
  if (bytes > 0) group.broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), root);
  return text;
}

}  // namespace holdfast::comm
