// Stands for a CUDA library: a module is linked with it, and it is not found when that is loaded.
extern "C" int holdfast_absent_library() { return 1; }
