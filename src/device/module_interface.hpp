#pragma once
// Between holdfast-train and a backend that is loaded while it runs: the module's two C functions. Nothing of
// a module may be called before its stamp was found to be this program's.
#include "src/base/error.hpp"
#include "src/device/device.hpp"

namespace holdfast::device {

/// This machine, or this rank's part of it, has no such device that could be used. Nothing is broken: `auto`
/// goes on without it.
class Unavailable : public Error {
 public:
  using Error::Error;
};

using StampFunction = const char*();
/// A new Device, which the caller owns. `speaker`: see log::start(). Throws Unavailable, or Error.
using OpenFunction = Device*(const DeviceOptions& options, const char* speaker);

inline constexpr const char* stamp_symbol = "holdfast_module_stamp";
inline constexpr const char* open_symbol = "holdfast_module_open";

}  // namespace holdfast::device

extern "C" {
[[gnu::visibility("default")]] holdfast::device::StampFunction holdfast_module_stamp;
[[gnu::visibility("default")]] holdfast::device::OpenFunction holdfast_module_open;
}
