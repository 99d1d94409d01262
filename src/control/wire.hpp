#pragma once
// Private to the codec: how a field of a message is read. A field that is missing, of another type or out of
// bounds is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "src/control/message.hpp"

namespace holdfast::control::wire {

using nlohmann::json;
constexpr std::int64_t max_ranks = 1 << 20, max_steps = std::int64_t{1} << 53, max_pids = 1 << 22;
constexpr std::size_t max_text = 4096, max_payload = 6 << 20;
// The limit of free text from a program. A byte that is not valid UTF-8 is sent as U+FFFD, which is 3 bytes.
constexpr std::size_t max_said = 4096;
constexpr std::size_t max_stacks = 64 << 10, max_answer = 1 << 20;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline const json& field(const json& j, const char* name) {
  const auto it = j.find(name);
  if (it == j.end()) throw Refused(std::string(name) + " is missing");
  return *it;
}
inline std::int64_t whole(const json& j, const char* name, std::int64_t low, std::int64_t high) {
  const json& f = field(j, name);
  if (!f.is_number_integer() || (f.is_number_unsigned() && f.get<std::uint64_t>() > INT64_MAX))
    throw Refused(std::string(name) + " is not a whole number");
  const auto value = f.get<std::int64_t>();
  if (value < low || value > high) throw Refused(std::string(name) + " is out of bounds");
  return value;
}
inline int small(const json& j, const char* name, std::int64_t low, std::int64_t high) {
  return static_cast<int>(whole(j, name, low, high));
}
inline bool truth(const json& j, const char* name) {
  const json& f = field(j, name);
  if (!f.is_boolean()) throw Refused(std::string(name) + " is not true or false");
  return f.get<bool>();
}
inline std::string text(const json& f, const char* name, std::size_t most = max_text) {
  if (!f.is_string() || f.get_ref<const std::string&>().size() > most)
    throw Refused(std::string(name) + " is not a text of bearable length");
  return f.get<std::string>();
}
inline std::string text_of(const json& j, const char* name, std::size_t most = max_text) {
  return text(field(j, name), name, most);
}
inline double real(const json& j, const char* name) {
  const json& f = field(j, name);
  if (!f.is_number()) throw Refused(std::string(name) + " is not a number");
  return f.get<double>();
}
inline const json& list(const json& j, const char* name, std::size_t most) {
  const json& f = field(j, name);
  if (!f.is_array() || f.size() > most)
    throw Refused(std::string(name) + " is not a list of bearable length");
  return f;
}
inline std::uint64_t key_of(const json& j, const char* name) {
  const json& f = field(j, name);
  if (!f.is_number_unsigned() || f.get<std::uint64_t>() == 0)
    throw Refused(std::string(name) + " is not a positive whole number");
  return f.get<std::uint64_t>();
}
inline int rank_of(const json& j) { return small(j, "rank", 0, max_ranks); }
inline int attempt_of(const json& j) { return small(j, "attempt", 0, INT32_MAX); }
inline int term_of(const json& j) { return small(j, "term", 0, INT32_MAX); }
inline std::int64_t step_of(const json& j) { return whole(j, "step", -1, max_steps); }
inline int status_of(const json& j, const char* name = "status") { return small(j, name, -1, 65535); }

template <class Enum, std::size_t n>
Enum one_of(const json& j, const char* name, const std::array<const char*, n>& names) {
  const std::string value = text_of(j, name);
  for (std::size_t i = 0; i < n; ++i)
    if (value == names[i]) return static_cast<Enum>(i);
  throw Refused(std::string(name) + " is unknown");
}

/// One specialization per message: its name in the JSON, how it is written, and how it is read.
template <class T>
struct Wire;

/// Free text, cut to the length that the other end accepts.
inline std::string said(const std::string& text) { return text.substr(0, max_said); }
inline std::string said_in(const json& j, const char* name) { return text_of(j, name, 3 * max_said); }

}  // namespace holdfast::control::wire
