#pragma once
// Training a small SentencePiece model, reproducibly.
#include <cstdint>
#include <functional>
#include <string>

namespace holdfast::text {

/// Trains a byte-fallback BPE model of `vocabulary` pieces in the manner of Llama 2 (identity normalisation,
/// single digits, <unk> 0, <s> 1, </s> 2, then the 256 bytes), without a dummy space at the start, and
/// returns the model file's bytes. The same text gives the same bytes: one thread, no sampling at random. At
/// most about 64 MiB of text, taken evenly, are looked at, so `text_bytes` is how long all of it is. `next`
/// gives the lines, valid UTF-8 without line feeds and of at most 256 KiB, until it returns false. Error
/// (usage) when the text cannot fill the vocabulary, or the vocabulary cannot hold the text's characters.
std::string train_sentencepiece(int vocabulary, std::uint64_t text_bytes,
                                const std::function<bool(std::string&)>& next);

}  // namespace holdfast::text
