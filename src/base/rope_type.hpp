#pragma once

namespace holdfast {

/// How the frequencies of rotary embedding are stretched for sequences that are longer than those on which a
/// model was first trained.
enum class RopeType {
  llama3,  ///< long wavelengths are divided by a factor, short ones kept, those between blended by wavelength
  linear,  ///< all are divided by it
  dynamic,   ///< nothing, up to the longest sequence ("dynamic NTK")
  yarn,      ///< as llama3, blended by place in the head; sines and cosines may grow
  longrope,  ///< each is divided by a factor of its own (Phi 3 and 4); sines and cosines may grow
};

}  // namespace holdfast
