#include "src/config/adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.hpp"
#include "src/config/load.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {

Adapters adapters_of(const Lora& lora) {
  Adapters out;
  if (lora.rank == 0) return out;
  if (!std::isfinite(lora.alpha) || lora.alpha <= 0)
    refuse("lora.alpha must be above 0", fmt::format("it is {}", lora.alpha), "Use twice the rank?");
  if (!(lora.dropout >= 0 && lora.dropout < 1))
    refuse("lora.dropout must be at least 0 and below 1", fmt::format("it is {}", lora.dropout), "");
  if (lora.targets.empty())
    refuse("lora.targets is empty", "adapters sit beside linear layers", "Use [\"q_proj\", \"v_proj\"]?");
  out.rank = lora.rank;
  out.scale = lora.alpha / lora.rank;
  out.dropout = lora.dropout;
  for (const std::string& target : lora.targets) {
    const auto at = std::ranges::find(names_of_projections, target);
    if (at == names_of_projections.end()) {
      const auto near = nearest_name(target, names_of_projections);
      refuse(fmt::format("lora.targets: there is no linear layer \"{}\"", target),
             fmt::format("a block has {}", fmt::join(names_of_projections, ", ")),
             near.empty() ? "" : "Did you mean " + near + "?");
    }
    bool& on = out.on[at - names_of_projections.begin()];
    if (on) refuse(fmt::format("lora.targets names {} twice", target), "", "");
    on = true;
  }
  return out;
}

ModelShape model_of(const RunConfig& config) {
  ModelShape out = load_model(config.model.file);
  out.adapters = adapters_of(config.lora);
  return out;
}

}  // namespace holdfast::config
