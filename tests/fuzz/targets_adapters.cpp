#include "src/base/error.hpp"
#include "src/config/peft_config.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

void try_adapter_config(std::string_view bytes) {
  try {
    const config::AdapterFacts read = config::parse_peft_config(bytes, "adapter_config.json");
    const config::AdapterFacts again = config::parse_peft_config(config::peft_config_text(read), "again");
    expects(again.lora == read.lora && again.base == read.base,
            "what is accepted is written and accepted again");
    expects(config::adapters_of(read.lora).rank >= 1, "they are adapters");
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
