#pragma once
// What the fake management library is to say of its first GPU, for a scope: FakeVariable links("LINKS",
// "16").
#include <cstdlib>
#include <string>

#include "src/base/env.hpp"

namespace holdfast::nvml {

class FakeVariable {
 public:
  FakeVariable(const std::string& name, const std::string& value) : name_("FAKE_NVML_" + name) {
    env::set(name_.c_str(), value);
  }
  ~FakeVariable() { ::unsetenv(name_.c_str()); }
  FakeVariable(const FakeVariable&) = delete;
  FakeVariable& operator=(const FakeVariable&) = delete;

 private:
  std::string name_;
};

}  // namespace holdfast::nvml
