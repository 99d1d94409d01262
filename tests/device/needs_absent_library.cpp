extern "C" int holdfast_absent_library();
extern "C" __attribute__((visibility("default"))) int holdfast_needs_it() {
  return holdfast_absent_library();
}
