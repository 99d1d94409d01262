// Rules about the shape of a model.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/as_size.hpp"
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
  if (m.rotary_dim % 2 != 0 || m.rotary_dim > m.head_size())
    refuse(fmt::format("model {}: rotary_dim {} is no even part of a head", m.name, m.rotary_dim),
           fmt::format("a head has {} elements, and pairs of them are turned", m.head_size()),
           "Correct the model file?");
  const auto pairs = m.rope_type == RopeType::longrope ? as_size(m.rotary_size() / 2) : 0;
  for (const auto& [factors, key] :
       {std::pair{&m.rope_short_factors, "rope_short_factors"}, {&m.rope_long_factors, "rope_long_factors"}})
    if (factors->size() != pairs || std::ranges::any_of(*factors, [](double f) { return !(f > 0); }))
      refuse(fmt::format("model {}: {} has {} numbers, not {} positive ones", m.name, key, factors->size(),
                         pairs),
             "longrope has one for each pair of elements that is turned, and nothing else has any",
             "Correct the model file?");
  if (m.rope_type == RopeType::longrope && m.max_sequence > m.rope_original_sequence)
    refuse(fmt::format("model {}: max_sequence is longer than rope_original_sequence", m.name),
           fmt::format("{} and {}; beyond it, longrope has other frequencies, which are not computed here",
                       m.max_sequence, m.rope_original_sequence),
           fmt::format("Use max_sequence = {}?", m.rope_original_sequence));
  if (m.window == 0 && (m.full_every > 0 || m.window_rope_theta > 0))
    refuse(fmt::format("model {}: {} without window", m.name,
                       m.full_every > 0 ? "full_every" : "window_rope_theta"),
           "it says which blocks have a window, or what they do", "Set model.window, or leave it out?");
  if (m.full_every == 1 && m.window > 0)
    refuse(fmt::format("model {}: full_every is 1", m.name), "then no block has the window",
           "Leave out window and full_every?");
  if (m.window_rope_theta > 0 && m.window_rope_theta < 1)
    refuse(fmt::format("model {}: window_rope_theta {} is below 1", m.name, m.window_rope_theta),
           "it is the base of rotary frequencies", "Use 10000, as Gemma 3 does?");
  if (m.qk_norm_whole && !m.qk_norm)
    refuse(fmt::format("model {}: qk_norm_whole without qk_norm", m.name),
           "it says what these norms are over", "Set model.qk_norm = true, or leave both out?");
  if (m.norm_after && m.residual_multiplier != 1)
    refuse(fmt::format("model {}: norm_after with residual_multiplier {}", m.name, m.residual_multiplier),
           "the residual is kept divided by it, which norms behind attention and MLP do not know",
           "Leave one of them out?");
  for (const auto& [factor, key] : {std::pair{m.embedding_multiplier, "embedding_multiplier"},
                                    {m.residual_multiplier, "residual_multiplier"},
                                    {m.logits_scaling, "logits_scaling"}})
    if (factor <= 0)
      refuse(fmt::format("model {}: {} is 0", m.name, key), "nothing would be left of what it multiplies",
             "Leave it out, for 1?");
}

}  // namespace holdfast::config
