#pragma once
// The rules by which a SentencePiece model rewrites text before it is cut: `precompiled_charsmap`. First the
// bytes of a trie (uint32), then the trie, an array of uint32 as darts-clone lays it out
// (https://github.com/s-yata/darts-clone), then what is put in place of its keys, each text with a NUL
// behind.
#include <string_view>

namespace holdfast::text {

/// Whether these rules can be followed: SentencePiece does so without a look at where they lead.
bool sound_charsmap(std::string_view charsmap);

}  // namespace holdfast::text
