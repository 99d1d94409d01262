#pragma once
// The time of a step from what it computes and moves: a pure function of the model's operations
// (config::block_ops), the layout and the rates of a GPU. docs/foresee.md has the model in words, and how far
// it is from published runs.
#include <array>
#include <string_view>

#include "launcher/foresee/rates.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// The part of a block's forward pass that the backward pass repeats: of its products but the last, whose
/// result nothing reads, of attention, and of all else.
struct Recomputed {
  double products = 0, attention = 0, pointwise = 0;
  bool operator==(const Recomputed&) const = default;
};
Recomputed recomputed_by(config::ActivationCheckpointing mode);

/// What a trainer does in its own way. The defaults are holdfast-train's.
struct Trainer {
  Attention attention = Attention::ours_deterministic;
  double attention_slower = 1;  ///< than the kernel of that name
  double optimizer_bytes = 38;  ///< per parameter that a rank updates: squares, AdamW, the new copy
  double loss_bytes = 4;        ///< per logit, beside the head's products
  double copied_bytes = 0;      ///< per parameter and micro-step, between what collectives and products use
  double pointwise = 1;         ///< bytes of norms, activations and rope, over those of fused kernels
};

/// A rank and its layout.
struct StepFacts {
  GpuKind gpu;
  double adapter_bytes_s = 0;  ///< of its network adapter
  int ranks_per_node = 1;
  config::ModelShape model;
  int sequence = 0, micro_batch = 1;
  int micro_steps = 1;
  int group = 1,
      replicas = 1;           ///< ranks that share one copy of the parameters, and how many copies there are
  double gathered_bytes = 2;  ///< per parameter, on the wire
  double reduced_bytes = 4;   ///< per gradient, on the wire inside a group
  double summed_bytes = 4;    ///< per gradient, on the wire between replicas
  double partial_sums = 1;    ///< that a replica brings
  double gathers = 2;         ///< of a block in a micro-step; 0: it is gathered once in a step, or never
  double merged_bytes = 0;    ///< per parameter and step: sums of gradients that are added in memory
  bool split_optimizer = false;  ///< hfsdp: replicas share the optimizer's state, and gather its results
  double offloaded_bytes = 0;  ///< per parameter that a rank updates: over PCIe and back, with the optimizer
  bool fp8 = false;
  double rounded_weights = 1;  ///< fp8: how often a weight is rounded in a micro-step, both ways
  Recomputed recomputed;
  Trainer trainer;

  double tokens() const { return 1.0 * micro_batch * sequence; }  ///< of a micro-step
};

/// Seconds of a step. What overlaps counts once: collectives take multiprocessors from what is computed
/// beside them (`shared`), and are waited for where they take longer (`links`, `network`).
struct StepParts {
  double products = 0, attention = 0, pointwise = 0, recomputed = 0, head = 0, sums = 0, optimizer = 0,
         launches = 0, shared = 0, links = 0, network = 0;
  double total() const;
  bool operator==(const StepParts&) const = default;
};
struct NamedPart {
  std::string_view name;
  double StepParts::*seconds;
};
inline constexpr std::array step_parts = {
    NamedPart{"products", &StepParts::products},
    NamedPart{"attention", &StepParts::attention},
    NamedPart{"norms and activations", &StepParts::pointwise},
    NamedPart{"recomputed", &StepParts::recomputed},
    NamedPart{"head and loss", &StepParts::head},
    NamedPart{"gradient sums", &StepParts::sums},
    NamedPart{"optimizer", &StepParts::optimizer},
    NamedPart{"launches", &StepParts::launches},
    NamedPart{"slower beside collectives", &StepParts::shared},
    NamedPart{"waits for GPUs of the node", &StepParts::links},
    NamedPart{"waits for the network", &StepParts::network},
};

StepParts step_time(const StepFacts& facts, const Rates& rates);

}  // namespace holdfast::launcher
