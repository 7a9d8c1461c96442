// Stands for libcuda: checks what it is given against the toolkit's own header, and does by hand what the kernel
// "scale" of the tests does (out[i] = x[i] * factor). Launches and attributes are written down.
#define _GNU_SOURCE
#include "cuda.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHOWN 16
typedef struct {
  unsigned int grid[3], block[3], shared, attributes, ids[4], values[4][3];
  unsigned long long stream, hidden[2];
} launch;

launch stub_launches[SHOWN];
int stub_count = 0, stub_modules = 0, stub_shared = 0, stub_clusters = 0, stub_carveout = 0;
unsigned long long stub_sizes[SHOWN];
int stub_parameters = 0, stub_fails = 0;

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  if (memcmp(image, "\x7f" "ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
  *module = (CUmodule)image;
  stub_modules++;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)module;
  if (strcmp(name, "scale")) return CUDA_ERROR_NOT_FOUND;
  *function = (CUfunction)0x5ca1e;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
  (void)function;
  if (index >= (size_t)stub_parameters) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *size = stub_sizes[index];
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  (void)function;
  stub_carveout = config == CU_FUNC_CACHE_PREFER_SHARED;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  (void)function;
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) stub_clusters = value;
  else if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 227 * 1024)
    return CUDA_ERROR_INVALID_VALUE;
  else stub_shared = value;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error == CUDA_ERROR_LAUNCH_FAILED ? "unspecified launch failure" : "invalid argument";
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  if (function != (CUfunction)0x5ca1e || extra) return CUDA_ERROR_INVALID_HANDLE;
  if (stub_fails) return CUDA_ERROR_LAUNCH_FAILED;
  launch *kept = &stub_launches[stub_count++ % SHOWN];
  *kept = (launch){{config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                   config->sharedMemBytes, config->numAttrs};
  kept->stream = (unsigned long long)config->hStream;
  for (unsigned int i = 0; i < config->numAttrs && i < 4; i++) {
    kept->ids[i] = config->attrs[i].id;
    memcpy(kept->values[i], &config->attrs[i].value, sizeof kept->values[i]);
  }
  const float *x = *(float **)params[0];
  float *out = *(float **)params[1];
  int n = *(int *)params[2];
  float factor = *(float *)params[3];
  for (int i = 0; i < n; i++) out[i] = x[i] * factor;
  for (int i = 4; i < stub_parameters && i < 6; i++) kept->hidden[i - 4] = *(unsigned long long *)params[i];
  return CUDA_SUCCESS;
}

// Memory that processes share: a file in memory for each piece, whose mapping has the rights that were set.
CUresult cuMemGetAllocationGranularity(size_t *step, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option) {
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || option != CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    return CUDA_ERROR_INVALID_VALUE;
  *step = 1 << 16;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
  if (size % (1 << 16) || flags || prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  if (stub_fails) return CUDA_ERROR_LAUNCH_FAILED;
  int file = memfd_create("device", 0);
  if (file < 0 || ftruncate(file, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = file;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags) return CUDA_ERROR_INVALID_VALUE;
  *(int *)out = dup((int)handle);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *file, CUmemAllocationHandleType type) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  *handle = dup((int)(long)file);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr at, unsigned long long flags) {
  if (alignment || at || flags) return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr)mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (offset || flags) return CUDA_ERROR_INVALID_VALUE;
  void *made = mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0);
  return made == (void *)address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
  if (count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  int rights = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_READ;
  return mprotect((void *)address, size, rights) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size) {
  memcpy((void *)target, source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size) {
  memcpy(target, (void *)source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  return munmap((void *)address, size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return address && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return close((int)handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
