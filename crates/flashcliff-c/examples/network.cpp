/*
 * A network from a file, in C++: handles that free themselves, statuses as exceptions, and vectors for tensors. Runs it in float64 and in
 * float32, and compares the results with those of Rust. The interface is the one for C; the few lines of `Handle` are all that C++ adds.
 *
 *   cargo xtask install --prefix ~/flashcliff
 *   cargo run --release --package flashcliff-network --example store -- /tmp
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   c++ -std=c++17 network.cpp -o network $(pkg-config --cflags --libs flashcliff) && ./network /tmp/network.safetensors /tmp/tensors.f64
 */
#include <flashcliff.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

/* A status of the library, with its message. */
class Failure : public std::runtime_error {
public:
    explicit Failure(int status) : std::runtime_error(fc_last_error()), status(status) {}

    const int status;
};

void check(int status) {
    if (status != FC_OK) throw Failure(status);
}

/* Owns what the library has made. */
template <typename T, void (*Free)(T *)>
struct Deleter {
    void operator()(T *own) const { Free(own); }
};
template <typename T, void (*Free)(T *)>
using Handle = std::unique_ptr<T, Deleter<T, Free>>;

template <typename T>
constexpr int dtype = std::is_same_v<T, float> ? FC_F32 : FC_F64;

/* A network planned for one batch: its memory is taken once, for all runs. */
template <typename T>
class Runner {
public:
    Runner(const fc_network *network, fc_network_batch batch) {
        fc_network_runner *made = nullptr;
        check(fc_network_plan(network, batch, dtype<T>, nullptr, 0, &made));
        runner.reset(made);
        std::size_t inputs = 0, outputs = 0, parameters = 0;
        check(fc_network_counts(network, &inputs, &outputs, &parameters));
        for (std::size_t i = 0; i < outputs; ++i) {
            fc_network_end end{};
            check(fc_network_output(network, i, batch, &end));
            results.emplace_back(end.len);
        }
    }

    const std::vector<std::vector<T>> &operator()(const std::vector<std::vector<T>> &inputs) {
        std::vector<const void *> from;
        std::vector<void *> to;
        for (const auto &input : inputs) from.push_back(input.data());
        for (auto &result : results) to.push_back(result.data());
        fc_network_call call{};
        call.inputs = from.data();
        call.input_count = from.size();
        call.outputs = to.data();
        call.output_count = to.size();
        check(fc_network_run(runner.get(), &call));
        return results;
    }

private:
    Handle<fc_network_runner, fc_network_runner_free> runner;
    std::vector<std::vector<T>> results;
};

class Network {
public:
    explicit Network(const std::string &path) {
        fc_network *made = nullptr;
        check(fc_network_load(path.c_str(), &made));
        network.reset(made);
    }

    std::vector<fc_network_end> inputs(fc_network_batch batch) const { return ends(fc_network_input, counts().first, batch); }
    std::vector<fc_network_end> outputs(fc_network_batch batch) const { return ends(fc_network_output, counts().second, batch); }

    template <typename T>
    Runner<T> plan(fc_network_batch batch) const {
        return Runner<T>(network.get(), batch);
    }

private:
    using End = int (*)(const fc_network *, std::size_t, fc_network_batch, fc_network_end *);

    std::pair<std::size_t, std::size_t> counts() const {
        std::size_t inputs = 0, outputs = 0, parameters = 0;
        check(fc_network_counts(network.get(), &inputs, &outputs, &parameters));
        return {inputs, outputs};
    }

    std::vector<fc_network_end> ends(End end, std::size_t count, fc_network_batch batch) const {
        std::vector<fc_network_end> all(count);
        for (std::size_t i = 0; i < count; ++i) check(end(network.get(), i, batch, &all[i]));
        return all;
    }

    Handle<fc_network, fc_network_free> network;
};

/* The next numbers of a file. */
std::vector<double> numbers(std::istream &file, const fc_network_end &end) {
    std::vector<double> data(end.len);
    const auto bytes = static_cast<std::streamsize>(data.size() * sizeof(double));
    if (!file.read(reinterpret_cast<char *>(data.data()), bytes)) throw std::runtime_error("expected more numbers of " + std::string(end.name));
    return data;
}

/* The largest difference, relative to the largest number. */
template <typename T>
double difference(const std::vector<T> &found, const std::vector<double> &wanted) {
    double most = 0, size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(found[i]) - wanted[i]));
        size = std::max(size, std::abs(wanted[i]));
    }
    return most / size;
}

bool run(const char *path, const char *tensors) {
    /* The batch for which the file has inputs and results. */
    fc_network_batch batch{};
    batch.samples = 3;
    batch.items = 4;

    const Network network(path);
    std::ifstream file(tensors, std::ios::binary);
    std::vector<std::vector<double>> inputs, wanted;
    for (const auto &end : network.inputs(batch)) inputs.push_back(numbers(file, end));
    for (const auto &end : network.outputs(batch)) wanted.push_back(numbers(file, end));

    auto wide = network.plan<double>(batch);
    const bool same = wide(inputs) == wanted;
    std::cout << (same ? "the results of Rust, bit for bit\n" : "other results than those of Rust\n");

    std::vector<std::vector<float>> narrow;
    for (const auto &input : inputs) narrow.emplace_back(input.begin(), input.end());
    auto runner = network.plan<float>(batch);
    const auto &found = runner(narrow);
    double most = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) most = std::max(most, difference(found[i], wanted[i]));
    std::cout << "float32 differs by " << most << '\n';

    /* Mistakes are exceptions. */
    int status = FC_OK;
    try {
        Network("no_such_file");
    } catch (const Failure &failure) {
        status = failure.status;
        std::cout << failure.what() << '\n';
    }
    return same && most < 1e-5 && status == FC_BAD_FILE;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: network network.safetensors tensors.f64\n";
        return 2;
    }
    try {
        return run(argv[1], argv[2]) ? 0 : 1;
    } catch (const std::exception &failure) {
        std::cerr << failure.what() << '\n';
        return 1;
    }
}
