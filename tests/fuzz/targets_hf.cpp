#include "checkpoint/index/safetensors_index.hpp"
#include "src/base/error.hpp"
#include "src/config/hf_config.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

void try_hf_config(std::string_view bytes) {
  namespace safetensors = checkpoint::safetensors;
  try {
    const auto read = config::parse_hf_config(bytes, "config.json", "fuzzed");
    const std::string text = config::hf_config_text(read.shape, "bfloat16", read.ids);
    const auto again = config::parse_hf_config(text, "config.json", "fuzzed");
    expects(again.shape == read.shape && again.dtype == "bfloat16" && again.ids.eos == read.ids.eos,
            "what is accepted is written and accepted again");
    expects(config::parameters_of(read.shape) > 0, "sizes are such that parameters can be counted");
  } catch (const Error&) {
  }
  try {
    const auto read = safetensors::parse_index(bytes, "index.json");
    for (const auto& [tensor, file] : read)
      expects(file.find('/') == std::string::npos && file != "..", "a file lies beside its index");
    expects(safetensors::parse_index(safetensors::index_text(read, 1), "index.json") == read,
            "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
