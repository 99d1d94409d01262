#pragma once
// The element types of src/base/dtype.hpp under the names that the trainer's parts use.
#include "src/base/dtype.hpp"

namespace holdfast::tensor {

using holdfast::Bf16;
using holdfast::bytes_of;
using holdfast::DType;
using holdfast::dtype_of;
using holdfast::E4m3;
using holdfast::E5m2;
using holdfast::is_fp8;
using holdfast::to_bf16;
using holdfast::to_float;

}  // namespace holdfast::tensor
