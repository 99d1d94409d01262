// Rules about the shape of a model.
#include <fmt/format.h>

#include <utility>

#include "src/config/check_parts.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {

void check_model(const ModelShape& m) {
  if (m.vocabulary < 1 || m.width < 1 || m.layers < 1 || m.heads < 1 || m.kv_heads < 1 || m.ffn < 1 ||
      m.max_sequence < 1)
    refuse("a size of model " + m.name + " is not positive",
           "all of vocabulary, width, layers, heads, kv_heads, ffn and max_sequence must be",
           "Correct the model file?");
  if (m.head_dim == 0 && m.width % m.heads != 0)
    refuse(fmt::format("model {}: heads does not divide width", m.name),
           fmt::format("{} heads, width {}", m.heads, m.width), "Set model.head_dim?");
  if (m.head_size() % 2 != 0)
    refuse(fmt::format("model {}: the head size is odd", m.name),
           m.head_dim > 0 ? fmt::format("head_dim {}; rotary embedding turns pairs", m.head_dim)
                          : fmt::format("width {} / {} heads = {}; rotary embedding turns pairs", m.width,
                                        m.heads, m.head_size()),
           "Correct the model file?");
  if (m.heads % m.kv_heads != 0)
    refuse(fmt::format("model {}: kv_heads does not divide heads", m.name),
           fmt::format("{} heads, {} kv_heads", m.heads, m.kv_heads), "Correct the model file?");
  if (m.rope_low_frequency >= m.rope_high_frequency)
    refuse(fmt::format("model {}: rope_low_frequency is not below rope_high_frequency", m.name),
           fmt::format("{} and {}; between them the stretching is blended", m.rope_low_frequency,
                       m.rope_high_frequency),
           "Use 1 and 4, as Llama 3.1 does?");
  for (const auto& [factor, key] : {std::pair{m.embedding_multiplier, "embedding_multiplier"},
                                    {m.residual_multiplier, "residual_multiplier"},
                                    {m.logits_scaling, "logits_scaling"}})
    if (factor <= 0)
      refuse(fmt::format("model {}: {} is 0", m.name, key), "nothing would be left of what it multiplies",
             "Leave it out, for 1?");
}

}  // namespace holdfast::config
