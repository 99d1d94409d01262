// A driver library without a driver, under the driver's name: it takes kernels and runs none. With it, cuDNN
// finalizes plans where there is no GPU: engines are chosen, and their kernels compiled and "loaded".

using Result = int;

namespace {
constexpr Result done = 0, not_supported = 801;
int something = 0;  // what every handle points to: nobody looks behind one
}  // namespace

extern "C" {

Result cuInit(unsigned) { return done; }
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return done;
}
Result cuGetErrorString(Result, const char** text) {
  *text = "not done by the stand-in for a driver";
  return done;
}
Result cuLibraryLoadData(void** library, const void*, void*, void**, unsigned, void*, void**, unsigned) {
  *library = &something;
  return done;
}
Result cuLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = &something;
  return done;
}
Result cuLibraryUnload(void*) { return done; }
Result cuKernelGetFunction(void** function, void*) {
  *function = &something;
  return done;
}
Result cuFuncSetAttribute(void*, int, int) { return done; }
Result cuKernelSetAttribute(int, int, void*, int) { return done; }

// Looked up by name, so they have to be there.
#define REFUSED(name) \
  Result name() { return not_supported; }
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetDevice)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDeviceGetCount)
REFUSED(cuDevicePrimaryCtxRelease)
REFUSED(cuDevicePrimaryCtxReset)
REFUSED(cuDevicePrimaryCtxRetain)
REFUSED(cuFuncGetAttribute)
REFUSED(cuGetErrorName)
REFUSED(cuGetExportTable)
REFUSED(cuKernelGetAttribute)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLinkAddData)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkAddFile_v2)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkCreate_v2)
REFUSED(cuLinkDestroy)
REFUSED(cuMemcpyDtoH_v2)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleGetGlobal_v2)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleLoadFatBinary)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)
REFUSED(cuStreamSynchronize)
REFUSED(cuTensorMapEncodeTiled)
#undef REFUSED
}
