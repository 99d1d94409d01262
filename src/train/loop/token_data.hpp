#pragma once
// What a run learns from and what it is measured by: its token files, as one.
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/data/samples.hpp"
#include "src/data/token_file.hpp"
#include "src/train/common/setup.hpp"

namespace holdfast::train {

struct HeldOut {
  std::string name;  ///< for metrics
  data::TokenFile file;
};

struct TokenData {
  data::Samples samples;
  std::vector<std::string> names;  ///< of its sources, for metrics
  std::vector<HeldOut> held_out;   ///< empty: the run is not evaluated
};

/// Bare mode: the steps that train.epochs make. Under an agent the run has them already. Throws Error.
void settle_length(Setup& setup);

/// Collective. Throws Error (usage) on every rank: a file is not usable, has more tokens than the model, or
/// was made by another tokenizer than the one beside the model's weights, or than the file before it.
TokenData open_token_data(const Setup& setup, comm::Communicator& world);

}  // namespace holdfast::train
