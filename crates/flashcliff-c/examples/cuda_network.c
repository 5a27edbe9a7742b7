/*
 * A network from a file on an NVIDIA GPU, with its gradients, beside the CPU in double; then one of messages on graphs.
 *
 *   cargo xtask install --prefix ~/flashcliff --cuda
 *   cargo run --release --package flashcliff-network --example store -- /tmp
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   cc cuda_network.c -o cuda_network $(pkg-config --cflags --libs flashcliff) -I$CUDA_HOME/include -L$CUDA_HOME/lib64 -lcudart -lm
 *   ./cuda_network /tmp/network.safetensors /tmp/bodies.safetensors
 *
 * Ends with 77 where there is no GPU.
 */
#include <cuda_runtime_api.h>
#include <flashcliff.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A batch of samples, and a ragged one of the same rows. */
static const fc_network_batch BATCH = {.samples = 6, .items = 10}, RAGGED = {.samples = 1, .items = 60};
static const size_t OFFSETS[] = {0, 7, 7, 40, 60};
static const int32_t DEVICE_OFFSETS[] = {0, 7, 7, 40, 60};
enum { MOST = 4, OFFSET_COUNT = 5 };

static const char *const TYPE_NAMES[] = {"f32", "f64"};
static const size_t TYPE_BYTES[] = {4, 8};
/* Errors allowed, relative to the largest element of a tensor, or of all gradients for those that are near zero. */
static const double BOUNDS[] = {2e-4, 1e-10};

static void check(int status) {
    if (status != FC_OK) {
        fprintf(stderr, "status %d: %s\n", status, fc_last_error());
        exit(1);
    }
}

static void check_cuda(cudaError_t error) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

static void *room(size_t bytes) {
    void *data = calloc(bytes + 1, 1);
    if (!data) exit(1);
    return data;
}

static void *on_gpu(size_t bytes) {
    void *address;
    check_cuda(cudaMalloc(&address, bytes ? bytes : 1));
    /* Memory that is not written shows. */
    check_cuda(cudaMemset(address, 0xff, bytes));
    return address;
}

/* Copies numbers to the GPU in a type. */
static void *moved(const double *values, size_t count, int type) {
    void *host = room(count * TYPE_BYTES[type]), *address = on_gpu(count * TYPE_BYTES[type]);
    for (size_t i = 0; i < count; ++i) {
        if (type == FC_F64) ((double *)host)[i] = values[i];
        else ((float *)host)[i] = (float)values[i];
    }
    check_cuda(cudaMemcpy(address, host, count * TYPE_BYTES[type], cudaMemcpyHostToDevice));
    free(host);
    return address;
}

/* The largest error of numbers on the GPU, relative to the largest number, which counts as some size at least. */
static double error_of(const void *address, const double *expected, size_t count, int type, double least) {
    void *host = room(count * TYPE_BYTES[type]);
    check_cuda(cudaMemcpy(host, address, count * TYPE_BYTES[type], cudaMemcpyDeviceToHost));
    double error = 0;
    for (size_t i = 0; i < count; ++i) {
        double apart = fabs((type == FC_F64 ? ((double *)host)[i] : ((float *)host)[i]) - expected[i]);
        least = fmax(least, fabs(expected[i]));
        error = apart <= error ? error : apart; /* NaN stays. */
    }
    free(host);
    return error / least;
}

static double *drawn(size_t count) {
    double *values = room(count * sizeof *values);
    for (size_t i = 0; i < count; ++i) values[i] = (rand() % 129 - 64) / 64.0;
    return values;
}

/* Two graphs with edges of all kinds: one that is there twice, a loop, a node with none. */
static const fc_network_batch GRAPHS = {.samples = 6, .items = 1, .edges = 8, .graphs = 2};
static const uint32_t RECEIVERS[] = {1, 0, 4, 1, 1, 0, 3, 1}, SENDERS[] = {0, 1, 2, 2, 4, 1, 3, 0}, OWN[] = {0, 0, 1, 0, 1, 1};
enum { RELATIONS = 3 };

/* Runs the network on the GPU in a type and on the CPU in double, and their gradients; whether both agree. */
static int agree(const fc_network *network, fc_network_batch batch, const fc_relation *const *relations, int type, cudaStream_t stream) {
    const int is_ragged = batch.samples == 1;
    size_t inputs, outputs, parameters;
    check(fc_network_counts(network, &inputs, &outputs, &parameters));
    if (inputs > MOST || outputs != 1) return 0;
    const size_t count = inputs + parameters;
    size_t *lens = room(count * sizeof *lens);
    int *wanted = room(count * sizeof *wanted);
    void **host_grads = room(count * sizeof *host_grads), **grads = room(count * sizeof *grads);
    const void *host[MOST], *device[MOST];
    fc_network_end end;
    for (size_t i = 0; i < count; ++i) {
        if (i < inputs) check(fc_network_input(network, i, batch, &end));
        else check(fc_network_parameter(network, i - inputs, &end));
        lens[i] = end.len;
        wanted[i] = 1;
        host_grads[i] = room(end.len * sizeof(double));
        grads[i] = on_gpu(end.len * TYPE_BYTES[type]);
        if (i < inputs) {
            host[i] = drawn(end.len);
            device[i] = moved(host[i], end.len, type);
        }
    }
    check(fc_network_output(network, 0, batch, &end));
    const size_t len = end.len;
    double *output = room(len * sizeof(double)), *seed = drawn(len);
    void *device_output = on_gpu(len * TYPE_BYTES[type]), *device_seed = moved(seed, len, type);

    fc_network_runner *runner;
    check(fc_network_plan(network, batch, FC_F64, wanted, count, &runner));
    fc_network_call call = {.inputs = host, .input_count = inputs, .outputs = (void *[]){output}, .output_count = 1};
    if (is_ragged) call.offsets = OFFSETS, call.offset_count = OFFSET_COUNT;
    if (relations) call.relations = relations, call.relation_count = RELATIONS;
    fc_network_gradients gradients = {(const void *[]){seed}, 1, host_grads, count};
    check(fc_network_run(runner, &call));
    check(fc_network_backward(runner, &call, &gradients));

    fc_cuda_network *planned;
    check(fc_cuda_network_plan(network, batch, type, wanted, count, 0, FC_HIGHEST, &planned));
    const char *page;
    check(fc_cuda_network_explain(planned, NULL, &page));
    if (!strstr(page, "      kernels: ")) return 1;
    fc_cuda_network_sizes sizes;
    check(fc_cuda_network_sizes_of(planned, &sizes));
    size_t most = sizes.run_workspace_bytes;
    if (sizes.backward_workspace_bytes > most) most = sizes.backward_workspace_bytes;
    int32_t *device_offsets = on_gpu(sizeof DEVICE_OFFSETS);
    check_cuda(cudaMemcpy(device_offsets, DEVICE_OFFSETS, sizeof DEVICE_OFFSETS, cudaMemcpyHostToDevice));
    fc_cuda_network_call gpu_call = {.tensors = call,
                                     .device_offsets = is_ragged ? device_offsets : NULL,
                                     .kept = on_gpu(sizes.kept_bytes),
                                     .kept_bytes = sizes.kept_bytes,
                                     .workspace = on_gpu(most),
                                     .workspace_bytes = most,
                                     .stream = stream};
    gpu_call.tensors.inputs = device;
    gpu_call.tensors.outputs = &device_output;
    fc_network_gradients gpu_gradients = {(const void *[]){device_seed}, 1, grads, count};
    check_cuda(cudaDeviceSynchronize());
    double error = 0, slope_error = 0;
    /* The second time what was written is there. */
    for (int run = 0; run < 2; ++run) {
        check(fc_cuda_network_run(planned, &gpu_call));
        check(fc_cuda_network_backward(planned, &gpu_call, &gpu_gradients));
        check_cuda(cudaStreamSynchronize(stream));
        double own = error_of(device_output, output, len, type, 1e-3), largest = 0;
        error = own <= error ? error : own;
        for (size_t i = 0; i < count; ++i)
            for (size_t j = 0; j < lens[i]; ++j) largest = fmax(largest, fabs(((double *)host_grads[i])[j]));
        for (size_t i = 0; i < count; ++i) {
            own = error_of(grads[i], host_grads[i], lens[i], type, 1e-3 * largest);
            slope_error = own <= slope_error ? slope_error : own;
            check_cuda(cudaMemset(grads[i], 0xff, lens[i] * TYPE_BYTES[type]));
        }
        check_cuda(cudaMemset(device_output, 0xff, len * TYPE_BYTES[type]));
    }
    int right = error <= BOUNDS[type] && slope_error <= BOUNDS[type];
    printf("%s %s: kept %zu bytes, workspace %zu bytes, error %.1e, of gradients %.1e%s\n", relations ? "graphs" : is_ragged ? "ragged" : "even  ",
           TYPE_NAMES[type], sizes.kept_bytes, most, error, slope_error, right ? "" : "  too large");

    /* Parameters of the caller: all zeros give other results than those of the file. Bodies then stay where they are. */
    void **zeros = room(parameters * sizeof *zeros);
    for (size_t i = 0; i < parameters; ++i) {
        const size_t bytes = lens[inputs + i] * TYPE_BYTES[type];
        zeros[i] = on_gpu(bytes);
        check_cuda(cudaMemset(zeros[i], 0, bytes));
    }
    fc_cuda_network_call with_zeros = gpu_call;
    with_zeros.tensors.parameters = (const void *const *)zeros;
    with_zeros.tensors.parameter_count = parameters;
    check_cuda(cudaDeviceSynchronize());
    check(fc_cuda_network_run(planned, &with_zeros));
    check_cuda(cudaStreamSynchronize(stream));
    double *nothing = room(len * sizeof(double));
    if (relations)
        for (size_t i = 0; i < len; ++i) nothing[i] = ((const double *)host[0])[i % batch.samples * 7 + 1 + i / batch.samples];
    right &= error_of(device_output, nothing, len, type, 1) <= (relations ? BOUNDS[type] : 0);

    /* A plan without gradients keeps nothing. */
    fc_cuda_network *alone;
    check(fc_cuda_network_plan(network, batch, type, NULL, 0, 0, FC_HIGHEST, &alone));
    check(fc_cuda_network_sizes_of(alone, &sizes));
    fc_cuda_network_call alone_call = gpu_call;
    alone_call.kept = NULL;
    alone_call.kept_bytes = 0;
    right &= sizes.kept_bytes == 0 && sizes.run_workspace_bytes <= most;
    check(fc_cuda_network_run(alone, &alone_call));
    check_cuda(cudaStreamSynchronize(stream));
    right &= error_of(device_output, output, len, type, 1e-3) <= BOUNDS[type];

    /* Mistakes are messages, and launch nothing. */
    fc_cuda_network_call wrong = gpu_call;
    wrong.workspace_bytes = 0;
    right &= fc_cuda_network_run(planned, &wrong) == FC_BAD_ARGUMENT && strstr(fc_last_error(), "workspace") != NULL;
    wrong = gpu_call;
    wrong.kept_bytes = 0;
    right &= fc_cuda_network_backward(planned, &wrong, &gpu_gradients) == FC_BAD_ARGUMENT;
    wrong = gpu_call;
    wrong.tensors.outputs = (void *[]){(char *)device_output + TYPE_BYTES[type]};
    right &= fc_cuda_network_run(planned, &wrong) == FC_BAD_ARGUMENT && strstr(fc_last_error(), "multiples of 16") != NULL;
    wrong.tensors.outputs = (void *[]){(void *)device[0]};
    right &= fc_cuda_network_run(planned, &wrong) == FC_BAD_ARGUMENT && strstr(fc_last_error(), "overlap") != NULL;
    right &= fc_cuda_network_backward(alone, &gpu_call, &gpu_gradients) == FC_BAD_ARGUMENT;
    if (relations) {
        wrong = gpu_call;
        wrong.tensors.relation_count = 2;
        right &= fc_cuda_network_run(planned, &wrong) == FC_BAD_ARGUMENT;
        wrong.tensors.relations = (const fc_relation *[]){relations[0], relations[1], NULL};
        wrong.tensors.relation_count = RELATIONS;
        right &= fc_cuda_network_run(planned, &wrong) == FC_BAD_ARGUMENT && strstr(fc_last_error(), "relations") != NULL;
    }
    fc_cuda_network *none;
    right &= fc_cuda_network_plan(network, batch, FC_BF16, NULL, 0, 0, FC_HIGHEST, &none) == FC_BAD_ARGUMENT && !none;
    right &= fc_cuda_network_plan(network, (fc_network_batch){.items = 4}, type, NULL, 0, 0, FC_HIGHEST, &none) == FC_BAD_ARGUMENT;

    for (size_t i = 0; i < count; ++i) {
        free(host_grads[i]);
        check_cuda(cudaFree(grads[i]));
        if (i < inputs) free((void *)host[i]), check_cuda(cudaFree((void *)device[i]));
        else check_cuda(cudaFree(zeros[i - inputs]));
    }
    void *gpu_memory[] = {device_output, device_seed, device_offsets, gpu_call.kept, gpu_call.workspace};
    for (size_t i = 0; i < sizeof gpu_memory / sizeof *gpu_memory; ++i) check_cuda(cudaFree(gpu_memory[i]));
    free(lens), free(wanted), free(host_grads), free(grads), free(zeros), free(nothing), free(output), free(seed);
    fc_cuda_network_free(alone);
    fc_cuda_network_free(planned);
    fc_network_runner_free(runner);
    return right;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: cuda_network network.safetensors bodies.safetensors\n");
        return 2;
    }
    fc_network *network, *bodies;
    check(fc_network_load(argv[1], &network));
    check(fc_network_load(argv[2], &bodies));
    fc_cuda_network *planned;
    int status = fc_cuda_network_plan(network, BATCH, FC_F32, NULL, 0, 0, FC_HIGHEST, &planned);
    if (status == FC_NO_CUDA) {
        printf("no GPU: %s\n", fc_last_error());
        fc_network_free(network);
        fc_network_free(bodies);
        return 77;
    }
    check(status);
    fc_cuda_network_free(planned);
    cudaStream_t stream;
    check_cuda(cudaSetDevice(0));
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fc_relation *relations[RELATIONS];
    check(fc_relation_new(RECEIVERS, GRAPHS.edges, GRAPHS.samples, &relations[0]));
    check(fc_relation_new(SENDERS, GRAPHS.edges, GRAPHS.samples, &relations[1]));
    check(fc_relation_new(OWN, GRAPHS.samples, GRAPHS.graphs, &relations[2]));
    int right = 1;
    for (int type = FC_F32; type <= FC_F64; ++type) {
        right &= agree(network, BATCH, NULL, type, stream);
        right &= agree(network, RAGGED, NULL, type, stream);
        right &= agree(bodies, GRAPHS, (const fc_relation *const *)relations, type, stream);
    }
    for (int i = 0; i < RELATIONS; ++i) fc_relation_free(relations[i]);
    fc_network_free(bodies);
    check_cuda(cudaStreamDestroy(stream));
    fc_network_free(network);
    printf(right ? "all agree\n" : "some do not agree\n");
    return right ? 0 : 1;
}
