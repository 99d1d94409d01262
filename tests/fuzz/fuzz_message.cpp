// libFuzzer on messages. Its mutator knows what a message is: it changes one field of one that is right, at
// any depth, to a value at some edge, to another message's, or away.
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/control/message_samples.hpp"
#include "tests/fuzz/targets.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using nlohmann::json;

class FieldChanger {
 public:
  explicit FieldChanger(unsigned seed) : random_(seed) {}

  /// What follows a tab is no JSON, and stays.
  std::string change(std::string_view line) {
    json message = json::parse(json_part(line), nullptr, false);
    if (!message.is_object() || pick(8) == 0) {
      line = sample();
      message = json::parse(json_part(line));
    }
    change_field(message);
    return message.dump(-1, ' ', false, json::error_handler_t::replace)
        .append(line.substr(json_part(line).size()));
  }

 private:
  static std::string_view json_part(std::string_view line) { return line.substr(0, line.find('\t')); }
  void change_field(json& message) {
    json* place = &message;
    while (place->is_structured() && !place->empty() && (place == &message || pick(3) > 0))
      place = child(*place);
    if (place == &message) return;
    switch (pick(8)) {
      case 0:
        *place = json(json::value_t(pick(8)));
        break;
      case 1: {
        json other = json::parse(json_part(sample()));
        *place = *child(other);
        break;
      }
      case 2:
        if (place->is_array() && !place->empty()) {
          const json one = place->front();
          for (std::size_t i = pick(5000); i > 0; --i) place->push_back(one);
        }
        break;
      case 3:
        *place = std::string(pick(70000), static_cast<char>(random_()));
        break;
      default:
        *place = edge();
    }
  }
  std::size_t pick(std::size_t n) { return random_() % n; }
  std::string_view sample() {
    const auto& all = holdfast::control::samples();
    return all[pick(all.size())].second;
  }
  json* child(json& parent) {
    auto at = parent.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(pick(parent.size())));
    return &*at;
  }
  json edge() {
    const json edges[] = {-2,
                          -1,
                          0,
                          1,
                          255,
                          256,
                          4095,
                          4096,
                          65535,
                          65536,
                          1 << 20,
                          (1 << 20) + 1,
                          1 << 22,
                          INT32_MAX,
                          std::int64_t{INT32_MAX} + 1,
                          INT32_MIN,
                          std::int64_t{1} << 53,
                          (std::int64_t{1} << 53) + 1,
                          INT64_MAX,
                          INT64_MIN,
                          UINT64_MAX,
                          0.5,
                          -0.0,
                          1e308,
                          true,
                          false,
                          nullptr,
                          "",
                          "rank",
                          "leader",
                          "paused",
                          "\n\t",
                          "\xff",
                          json::array(),
                          json::object()};
    return edges[pick(std::size(edges))];
  }
  std::minstd_rand random_;
};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text = FieldChanger(seed).change({reinterpret_cast<const char*>(data), size});
  size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_message({reinterpret_cast<const char*>(data), size});
  return 0;
}
