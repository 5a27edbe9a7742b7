// Runs a network from a package that `flashcliff.export(net, "network.pt2")` wrote, without Python:
//
//   package network.pt2 output.f32 tokens.f32 3,5,18 reference.f32 3,5
//
// Inputs are files of float32 with their sizes, in the order of the network. Files whose names end in .i64 have int64, such as the nodes
// of edges. A package with gradients has the gradient of its output as the last input. The outputs are written one after another.
// A package for a GPU (`device="cuda"`) runs there. Compile the program against PyTorch, whose library is all that it needs; packages
// for GPUs need its part for CUDA too:
//
//   TORCH=$(python -c "import torch; print(torch.__path__[0])")
//   c++ -std=c++20 -O2 package.cpp -o package -I$TORCH/include -I$TORCH/include/torch/csrc/api/include \
//       -L$TORCH/lib -Wl,-rpath,$TORCH/lib -ltorch -ltorch_cpu -lc10 [-Wl,--no-as-needed -ltorch_cuda]

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

namespace {

std::vector<std::int64_t> sizes_of(const std::string& text) {
    std::vector<std::int64_t> sizes;
    std::stringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        sizes.push_back(std::stoll(part));
    }
    return sizes;
}

at::Tensor read(const std::string& path, const std::string& sizes) {
    const bool integers = path.size() > 4 && path.compare(path.size() - 4, 4, ".i64") == 0;
    at::Tensor x = at::empty(sizes_of(sizes), integers ? at::kLong : at::kFloat);
    const auto bytes = static_cast<std::streamsize>(x.nbytes());
    std::ifstream file(path, std::ios::binary);
    if (!file.read(static_cast<char*>(x.data_ptr()), bytes)) {
        throw std::runtime_error(path + ": expected " + std::to_string(bytes) + " bytes");
    }
    return x;
}

void run(int count, char** arguments) {
    const c10::InferenceMode mode;
    torch::inductor::AOTIModelPackageLoader network(arguments[1]);
    const at::Device device(network.get_metadata().at("AOTI_DEVICE_KEY"));
    std::vector<at::Tensor> inputs;
    for (int at = 3; at + 1 < count; at += 2) {
        inputs.push_back(read(arguments[at], arguments[at + 1]).to(device));
    }
    std::ofstream file(arguments[2], std::ios::binary);
    for (const at::Tensor& output : network.run(inputs)) {
        const at::Tensor x = output.cpu().contiguous();
        file.write(static_cast<const char*>(x.data_ptr()), static_cast<std::streamsize>(x.nbytes()));
        std::printf("%lld numbers\n", static_cast<long long>(x.numel()));
    }
    if (!file) {
        throw std::runtime_error(std::string(arguments[2]) + " cannot be written");
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 5 || count % 2 == 0) {
        std::fprintf(stderr, "expected: package PACKAGE OUTPUT [INPUT SIZES]...\n");
        return 2;
    }
    try {
        run(count, arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
