#pragma once
// A model that writes: logits of the token behind a text, and then one token after the other for several
// texts at once. The layers are those of src/model, without what a backward pass needs and with the keys and
// values of earlier tokens kept (fp32 or bf16, as the weights).
//
// Bits of a text's logits depend on its tokens and on where its prompt ended, never on the texts beside it:
// a prompt is computed alone, in chunks counted from its beginning, and the products of single tokens have
// rows that do not know of each other (products.hpp).
#include <functional>
#include <memory>
#include <span>

#include "src/kernels/kernels.hpp"
#include "src/tools/infer/kv_cache.hpp"
#include "src/tools/infer/parameters.hpp"

namespace holdfast::infer {

class Decoder {
 public:
  static constexpr int chunk = 256;  ///< tokens of a prompt that are computed together

  /// At most `batch` texts at once, of at most `positions` tokens each. References outlive the decoder.
  Decoder(Parameters& weights, kernels::Kernels& kernels, int batch, std::int64_t positions);
  ~Decoder();

  int batch() const;
  std::int64_t positions() const;
  /// Of a text without tokens.
  KvCache begin() const;

  /// Puts `tokens`, at least one, each in the vocabulary, behind a text; `logits` [V] are of what comes next.
  /// `stopped` is asked now and then, and when it says so nothing more is computed: false, and the text is of
  /// no use any more.
  bool prefill(KvCache& text, std::span<const std::int32_t> tokens, std::span<float> logits,
               const std::function<bool()>& stopped = {});
  /// Puts token i behind text i; row i of `logits` (texts x V, fp32) is of what comes next there.
  void step(std::span<KvCache* const> texts, std::span<const std::int32_t> tokens, tensor::Mat logits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::infer
