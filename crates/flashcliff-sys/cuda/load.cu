// Kernels that were compiled at run time.
#include <new>

#include "flashcliff.h"
#include "skeleton/blocks/registry.h"
#include "skeleton/registry.h"

namespace fc {
namespace {

cudaError_t load_code(const void *code, cudaLibrary_t *library) {
  return cudaLibraryLoadData(library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

// The function of a name, which all devices share. Launches take it in the place of a function of this library.
cudaError_t find_function(cudaLibrary_t library, const char *name, const void **function) {
  cudaKernel_t kernel;
  const cudaError_t error = cudaLibraryGetKernel(&kernel, library, name);
  if (error == cudaSuccess) *function = static_cast<const void *>(kernel);
  return error;
}

// Kernels of path products that were loaded.
struct LoadedBlocks {
  fc_block_kernels kernels;
  BlockVariants f32, f64;
};

cudaError_t load_variant(const fc_block_image &image, int variant, BlockFunctions *functions) {
  if (image.codes[variant] == nullptr) return cudaSuccess;
  cudaLibrary_t library;
  cudaError_t error = load_code(image.codes[variant], &library);
  const void **const works[] = {&functions->form,           &functions->pull_back,  &functions->pull_back_and_form,
                                &functions->scale_and_form, &functions->scale_sums, &functions->scale_sums_and_pull_back};
  static_assert(sizeof(works) / sizeof(*works) == FC_BLOCK_WORKS, "every kernel has its place");
  for (int work = 0; work < FC_BLOCK_WORKS && error == cudaSuccess; work++) {
    const char *name = image.functions[variant][work];
    if (name != nullptr) error = find_function(library, name, works[work]);
  }
  functions->channels = image.channels[variant];
  return error;
}

}  // namespace
}  // namespace fc

// What was loaded stays loaded if a later part fails: errors here are rare, and a caller that tries again finds the same.
extern "C" int fc_load(const fc_image *image, const fc_kernel **result) {
  if (image == nullptr || result == nullptr || image->codes[0] == nullptr) return FC_ERROR_BAD_CALL;
  auto *kernel = new (std::nothrow) fc_kernel{};
  if (kernel == nullptr) return cudaErrorMemoryAllocation;
  kernel->is_f64 = image->is_f64;
  kernel->pointwise = image->pointwise;
  kernel->walks = image->walks;
  kernel->wide = image->wide;
  for (int width = 0; width < 2; width++) kernel->tiles[width] = image->tiles[width];
  static_cast<fc_shape &>(kernel->shape) = image->shape;
  for (int i = 0; i < FC_VARIANTS; i++) {
    if (image->codes[i] == nullptr) continue;
    cudaLibrary_t library;
    cudaError_t error = fc::load_code(image->codes[i], &library);
    if (error == cudaSuccess) error = fc::find_function(library, image->functions[i], &kernel->functions[i]);
    if (error != cudaSuccess) {
      delete kernel;
      return error;
    }
  }
  *result = kernel;
  return 0;
}

extern "C" int fc_block_load(const fc_block_image *image, const fc_block_kernels **result) {
  if (image == nullptr || result == nullptr) return FC_ERROR_BAD_CALL;
  auto *loaded = new (std::nothrow) fc::LoadedBlocks{};
  if (loaded == nullptr) return cudaErrorMemoryAllocation;
  fc::BlockVariants &f32 = loaded->f32;
  fc::BlockFunctions *const variants[] = {&f32.any, &f32.f32, &f32.bf16, &f32.f16, &f32.scaled_any, &f32.scaled, &loaded->f64.any};
  static_assert(sizeof(variants) / sizeof(*variants) == FC_BLOCK_VARIANTS, "every variant has its place");
  for (int variant = 0; variant < FC_BLOCK_VARIANTS; variant++) {
    const cudaError_t error = fc::load_variant(*image, variant, variants[variant]);
    if (error != cudaSuccess) {
      delete loaded;
      return error;
    }
  }
  loaded->kernels = {"", image->paths, &loaded->f32, &loaded->f64};
  *result = &loaded->kernels;
  return 0;
}
