#pragma once
// The normalizer and pre_tokenizer of a tokenizer.json.
#include <nlohmann/json.hpp>
#include <string>

#include "src/tools/text/byte_bpe_model.hpp"

namespace holdfast::text {

/// Fills nfc, prefix_space and cuts of `model` from the whole document. Error (usage) names what is not
/// supported; ByteLevel has to be the last step.
void read_cuts(const nlohmann::json& document, const std::string& name, ByteBpeModel& model);

}  // namespace holdfast::text
