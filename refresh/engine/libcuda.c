/* Stands in for libcuda.so.1, so that the engine's libraries of kernels load where there is no driver. Every call says "no device". */
#define NO(name) int name(void) { return 100; }
NO(cuCtxGetCurrent) NO(cuCtxSetCurrent) NO(cuDeviceGetAttribute) NO(cuDeviceGetCount) NO(cuDevicePrimaryCtxRetain) NO(cuDriverGetVersion)
NO(cuGetErrorName) NO(cuGetErrorString) NO(cuGetProcAddress) NO(cuGetProcAddress_v2) NO(cuInit) NO(cuMemAddressFree)
NO(cuMemAddressReserve) NO(cuMemCreate) NO(cuMemGetAllocationGranularity) NO(cuMemMap) NO(cuMemRelease) NO(cuMemSetAccess)
NO(cuMemUnmap) NO(cuPointerGetAttribute) NO(cuTensorMapEncodeTiled)
