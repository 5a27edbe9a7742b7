// What differs between versions of PyTorch, from 2.6 on.
//
// This is a part of `call.cpp`, which includes it once.

#include <torch/version.h>

#define FLASHCLIFF_TORCH (100 * TORCH_VERSION_MAJOR + TORCH_VERSION_MINOR)

#if FLASHCLIFF_TORCH < 211
#include <dlfcn.h>
#endif

// How nodes of autograd say what a compiled graph depends on.
#if FLASHCLIFF_TORCH < 207
#define FLASHCLIFF_COMPILED_ARGS_CONST
#else
#define FLASHCLIFF_COMPILED_ARGS_CONST const
#endif

// Whether a kernel of the dispatcher can call the kernel that lies below it.
#define FLASHCLIFF_HAS_KERNELS_BELOW (FLASHCLIFF_TORCH >= 209)

namespace {

#if FLASHCLIFF_TORCH >= 211

// Whether CUDA's handle of a stream can be had.
bool has_handles() {
    return true;
}

uintptr_t cuda_handle(const c10::impl::VirtualGuardImpl& guard, const c10::Stream& stream) {
    return reinterpret_cast<uintptr_t>(guard.getStreamNativeHandle(stream));
}

#else

// `c10::cuda::CUDAStream::stream`. The class is a `c10::Stream` and functions; its headers need CUDA's headers, and its library is
// there with CUDA only.
using HandleOf = void* (*)(const c10::Stream*);

HandleOf handles() {
    static const HandleOf found = []() -> HandleOf {
        void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
        return library == nullptr ? nullptr : reinterpret_cast<HandleOf>(dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv"));
    }();
    return found;
}

bool has_handles() {
    return handles() != nullptr;
}

uintptr_t cuda_handle(const c10::impl::VirtualGuardImpl&, const c10::Stream& stream) {
    return reinterpret_cast<uintptr_t>(handles()(&stream));
}

#endif

// Whether matrix products of float32 on CUDA may round to TF32.
bool takes_tf32() {
    const at::Context& context = at::globalContext();
#if FLASHCLIFF_TORCH >= 210
    return context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
#elif FLASHCLIFF_TORCH >= 209
    return context.float32Precision("cuda", "matmul") == "tf32";
#else
    return context.float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST;
#endif
}

} // namespace
