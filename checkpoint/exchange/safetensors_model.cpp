#include "checkpoint/exchange/safetensors_model.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "checkpoint/exchange/export.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint::safetensors {
namespace {

constexpr const char* head_name = "lm_head.weight";
constexpr const char* embedding_name = "model.embed_tokens.weight";
constexpr const char* imported = "imported";

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

[[noreturn]] void refuse(const Source& source, const std::string& why) {
  throw Error(Exit::usage, source.path().string() + " is not of this model", why,
              "Name the model file that describes it, or the config.json beside it?");
}

void check_tensor(const Source& source, const LogicalTensor& wanted) {
  if (!source.has(wanted.name)) refuse(source, "it has no tensor " + wanted.name);
  const Tensor& there = source.tensor(wanted.name);
  if (!element_called(there.dtype))
    throw Error(Exit::usage, "cannot use the weights of " + source.path().string(),
                wanted.name + " is of dtype " + there.dtype +
                    "; F32, BF16, F16 and F64 are weights as they are, others need scales of their own",
                "Use the files of the model before it was quantised?");
  if (there.shape != shape_of(wanted))
    refuse(source, wanted.name + " has shape " + text_of(there.shape) + ", the model has " +
                       text_of(shape_of(wanted)));
}

/// A tied model's head repeats the embedding in some files.
void check_tied_head(const Source& source) {
  const Tensor &head = source.tensor(head_name), &embedding = source.tensor(embedding_name);
  bool same = head.dtype == embedding.dtype && head.shape == embedding.shape;
  const std::int64_t count = embedding.bytes / bytes_of_dtype(embedding.dtype), most = 1 << 20;
  std::vector<float> a, b;
  for (std::int64_t first = 0; same && first < count; first += most) {
    const auto n = as_size(std::min(most, count - first));
    a.resize(n), b.resize(n);
    const Wanted both[] = {{head_name, first, a}, {embedding_name, first, b}};
    source.read(both);
    same = std::memcmp(a.data(), b.data(), sizeof(float) * n) == 0;
  }
  if (!same) refuse(source, std::string(head_name) + " differs from the embedding, and the model ties them");
}

}  // namespace

std::vector<std::string> require_model(const Source& source, std::span<const LogicalTensor> model,
                                       bool tied) {
  std::vector<std::string> known, skipped;
  for (const LogicalTensor& wanted : model) {
    check_tensor(source, wanted);
    known.push_back(wanted.name);
  }
  std::sort(known.begin(), known.end());
  for (const std::string& name : source.names()) {
    if (std::binary_search(known.begin(), known.end(), name)) continue;
    const bool computed = name.ends_with("rotary_emb.inv_freq") || name == hdf5_meta_tensor;
    const bool tied_head = tied && name == head_name;
    if (!computed && !tied_head) refuse(source, "the model has no tensor " + name);
    if (tied_head) check_tied_head(source);
    skipped.push_back(name);
  }
  return skipped;
}

std::string imported_identity(const Source& source, std::span<const LogicalTensor> model) {
  std::vector<std::string> types;
  for (const LogicalTensor& tensor : model) types.push_back(source.tensor(tensor.name).dtype);
  const bool one = std::all_of(types.begin(), types.end(), [&](const auto& t) { return t == types.front(); });
  if (one && !types.empty()) types.resize(1);
  std::string text = imported + (" " + digest_text(source.identity()));
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
