#include "checkpoint/index/safetensors_model.hpp"

#include <algorithm>
#include <sstream>

namespace holdfast::checkpoint::safetensors {
namespace {

constexpr const char* imported = "imported";

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

[[noreturn]] void refuse(const Contents& files, const std::string& why) { throw not_of_model(files, why); }

void check_tensor(const Contents& files, const LogicalTensor& wanted) {
  if (!files.has(wanted.name)) refuse(files, "it has no tensor " + wanted.name);
  const Tensor& there = files.tensor(wanted.name);
  if (!element_called(there.dtype))
    throw Error(Exit::usage, "cannot use the weights of " + files.path().string(),
                wanted.name + " is of dtype " + there.dtype +
                    "; F32, BF16, F16 and F64 are weights as they are, others need scales of their own",
                "Use the files of the model before it was quantised?");
  if (there.shape != shape_of(wanted))
    refuse(files, wanted.name + " has shape " + text_of(there.shape) + ", the model has " +
                      text_of(shape_of(wanted)));
}

}  // namespace

Error not_of_model(const Contents& files, const std::string& why) {
  return {Exit::usage, files.path().string() + " is not of this model", why,
          "Name the model file that describes it, or the config.json beside it?"};
}

std::vector<std::string> require_model(const Contents& files, std::span<const LogicalTensor> model,
                                       bool tied) {
  std::vector<std::string> known, skipped;
  for (const LogicalTensor& wanted : model) {
    check_tensor(files, wanted);
    known.push_back(wanted.name);
  }
  std::sort(known.begin(), known.end());
  for (const std::string& name : files.names()) {
    if (std::binary_search(known.begin(), known.end(), name)) continue;
    const bool computed = name.ends_with("rotary_emb.inv_freq") || name == hdf5_meta_tensor;
    const bool tied_head = tied && name == head_name;
    if (!computed && !tied_head) refuse(files, "the model has no tensor " + name);
    skipped.push_back(name);
  }
  return skipped;
}

std::string imported_identity(const Contents& files, std::span<const LogicalTensor> model) {
  std::vector<std::string> types;
  for (const LogicalTensor& tensor : model) types.push_back(files.tensor(tensor.name).dtype);
  const bool one = std::all_of(types.begin(), types.end(), [&](const auto& t) { return t == types.front(); });
  if (one && !types.empty()) types.resize(1);
  std::string text = imported + (" " + digest_text(files.identity()));
  for (const std::string& type : types) text += " " + type;
  return text;
}

std::optional<std::vector<Element>> imported_types(const Facts& facts, std::size_t count) {
  std::istringstream words(facts.data_identity);
  std::string word, identity;
  std::vector<Element> types;
  if (!(words >> word >> identity) || word != imported) return {};
  while (words >> word) {
    const auto type = element_called(word);
    if (!type) return {};
    types.push_back(*type);
  }
  if (types.size() == 1) types.resize(count, types.front());
  if (types.size() != count) return {};
  return types;
}

}  // namespace holdfast::checkpoint::safetensors
