#include <algorithm>

#include "src/tools/chat/builtins.hpp"

namespace holdfast::chat {

std::optional<Value> Arguments::take(std::string_view name) {
  if (next_ < plain_.size()) return std::move(plain_[next_++]);
  const auto named =
      std::find_if(named_.begin(), named_.end(), [&](const auto& n) { return n.first == name; });
  if (named == named_.end()) return std::nullopt;
  Value value = std::move(named->second);
  named_.erase(named);
  return value;
}

Value Arguments::need(std::string_view name) {
  auto value = take(name);
  if (!value) throw Refusal("the argument '" + std::string(name) + "' is missing");
  return *std::move(value);
}

std::string Arguments::text(std::string_view name, std::string otherwise) {
  const auto value = take(name);
  if (!value) return otherwise;
  const auto* text = as<Text>(*value);
  if (!text) throw Refusal("'" + std::string(name) + "' must be a string, not " + kind_of(*value));
  return text->bytes;
}

std::int64_t Arguments::integer(std::string_view name, std::int64_t otherwise) {
  const auto value = take(name);
  if (value && !is_integer(*value, otherwise))
    throw Refusal("'" + std::string(name) + "' must be an integer, not " + kind_of(*value));
  return otherwise;
}

bool Arguments::boolean(std::string_view name, bool otherwise) {
  const auto value = take(name);
  return value ? truth(*value) : otherwise;
}

std::vector<Value> Arguments::rest() {
  std::vector<Value> rest(plain_.begin() + static_cast<std::ptrdiff_t>(next_), plain_.end());
  next_ = plain_.size();
  return rest;
}

std::vector<std::pair<std::string, Value>> Arguments::rest_named() { return std::exchange(named_, {}); }

void Arguments::finish() const {
  if (next_ < plain_.size()) throw Refusal("too many arguments");
  if (!named_.empty()) throw Refusal("there is no argument '" + named_.front().first + "'");
}

}  // namespace holdfast::chat
