#include "src/config/kept_blocks.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::config {
namespace {

[[noreturn]] void refuse(const Shard& shard, std::string why, std::string hint) {
  throw Error(Exit::usage, "shard.keep_gathered cannot be \"" + shard.keep_gathered + "\"", std::move(why),
              std::move(hint));
}

int block_number(const Shard& shard, std::string_view spelled) {
  int number = 0;
  const auto* end = spelled.data() + spelled.size();
  const auto [stop, failure] = std::from_chars(spelled.data(), end, number);
  if (failure != std::errc{} || stop != end || number < 0)
    refuse(shard, fmt::format("'{}' is not a block", spelled), "Write none, all, or blocks like 0,3,5-7?");
  return number;
}

}  // namespace

std::vector<bool> kept_blocks(const Shard& shard, int layers) {
  const std::string_view text = shard.keep_gathered;
  const auto all = as_size(layers);
  if (shard.strategy == Strategy::shard_grad_op) {
    if (text != "none" && text != "all")
      refuse(shard, "shard_grad_op keeps all blocks", "Leave it out, or use full_shard?");
    return std::vector<bool>(all, true);
  }
  if (text == "none" || text == "all") return std::vector<bool>(all, text == "all");
  std::vector<bool> out(all, false);
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    const auto dash = item.find('-');
    const int first = block_number(shard, item.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : block_number(shard, item.substr(dash + 1));
    if (first > last)
      refuse(shard, fmt::format("{} runs backwards", item), fmt::format("Write {}-{}?", last, first));
    if (last >= layers) refuse(shard, fmt::format("the model's blocks are 0 to {}", layers - 1), "Use all?");
    for (int block = first; block <= last; ++block) out[block] = true;
    at = comma + 1;
  }
  return out;
}

}  // namespace holdfast::config
