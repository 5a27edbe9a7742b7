/*
 * Operators on an NVIDIA GPU through the C interface, forward and backward in four element types, beside the CPU in double.
 *
 *   cargo xtask install --prefix ~/flashcliff --cuda
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   cc cuda.c -o cuda $(pkg-config --cflags --libs flashcliff) -I$CUDA_HOME/include -L$CUDA_HOME/lib64 -lcudart -lm && ./cuda
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

enum { BATCH = 33, CHANNELS = 32, MOST_INPUTS = 3 };

static const char *const TYPE_NAMES[] = {"f32", "f64", "bf16", "f16"};
static const size_t TYPE_BYTES[] = {4, 8, 2, 2};
/* Errors allowed, relative to the largest element. */
static const double BOUNDS[] = {1e-4, 1e-11, 5e-2, 2e-2};

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

/* Writes a number that every type can represent: a multiple of 1/64 from -1 to 1. */
static void encode(void *to, size_t index, int type, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (type) {
    case FC_F32: ((float *)to)[index] = single; return;
    case FC_F64: ((double *)to)[index] = value; return;
    case FC_BF16: ((uint16_t *)to)[index] = (uint16_t)(bits >> 16); return;
    default: {
        /* The exponent is between -6 and 0, so the number is not subnormal. */
        uint32_t sign = bits >> 16 & 0x8000, exponent = (bits >> 23 & 0xff) - 127 + 15;
        ((uint16_t *)to)[index] = (uint16_t)(value == 0 ? sign : sign | exponent << 10 | (bits >> 13 & 0x3ff));
    }
    }
}

static double decode(const void *from, size_t index, int type) {
    if (type == FC_F32) return ((const float *)from)[index];
    if (type == FC_F64) return ((const double *)from)[index];
    uint16_t half = ((const uint16_t *)from)[index];
    if (type == FC_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float single;
        memcpy(&single, &bits, sizeof single);
        return single;
    }
    int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return half & 0x8000 ? -size : size;
}

static void *on_gpu(size_t bytes) {
    void *address;
    check_cuda(cudaMalloc(&address, bytes ? bytes : 1));
    /* Memory that is not written shows. */
    check_cuda(cudaMemset(address, 0xff, bytes));
    return address;
}

/* Copies numbers to the GPU in some type. */
static void *moved(const double *values, size_t count, int type) {
    void *host = malloc(count * TYPE_BYTES[type]), *address = on_gpu(count * TYPE_BYTES[type]);
    for (size_t i = 0; i < count; ++i) encode(host, i, type, values[i]);
    check_cuda(cudaMemcpy(address, host, count * TYPE_BYTES[type], cudaMemcpyHostToDevice));
    free(host);
    return address;
}

/* The largest error of numbers on the GPU, relative to the largest number. */
static double error_of(const void *address, const double *expected, size_t count, int type) {
    void *host = malloc(count * TYPE_BYTES[type]);
    check_cuda(cudaMemcpy(host, address, count * TYPE_BYTES[type], cudaMemcpyDeviceToHost));
    double largest = 1e-3, error = 0;
    for (size_t i = 0; i < count; ++i) {
        double apart = fabs(decode(host, i, type) - expected[i]);
        largest = fmax(largest, fabs(expected[i]));
        error = apart <= error ? error : apart; /* NaN stays. */
    }
    free(host);
    return error / largest;
}

static void fill(double *values, size_t count) {
    for (size_t i = 0; i < count; ++i) values[i] = (rand() % 129 - 64) / 64.0;
}

typedef struct {
    const char *algebra, *name, *settings;
    size_t count;
    size_t shapes[MOST_INPUTS][3], axes[MOST_INPUTS];
    /* Whether an input is a parameter. */
    int parameter[MOST_INPUTS];
} Case;

static const Case CASES[] = {
    {"cl300", FC_SGP_NORM, NULL, 3, {{8, BATCH, CHANNELS}, {8, BATCH, CHANNELS}, {CHANNELS, 20}}, {3, 3, 2}, {0, 0, 1}},
    {"cl200", FC_PRODUCT, "kind=exterior", 2, {{4, BATCH, CHANNELS}, {4, BATCH, CHANNELS}}, {3, 3}, {0, 0}},
    {"cl300", FC_FCGP_NORM, NULL, 3, {{8, BATCH, CHANNELS}, {8, BATCH, CHANNELS}, {20, CHANNELS, 16}}, {3, 3, 3}, {0, 0, 1}},
};

static size_t length(const Case *c, size_t input) {
    size_t count = 1;
    for (size_t axis = 0; axis < c->axes[input]; ++axis) count *= c->shapes[input][axis];
    return count;
}

/* Runs an operator in a type on the GPU and in double on the CPU; whether both agree. */
static int agree(const Case *c, int type, int parameter_type, cudaStream_t stream) {
    fc_operator *op;
    fc_cuda_operator *gpu_op;
    check(fc_operator_new(c->algebra, c->name, c->settings, &op));
    check(fc_cuda_operator_new(op, 0, FC_HIGHEST, &gpu_op));

    double *values[MOST_INPUTS], *slopes[MOST_INPUTS];
    fc_tensor host[MOST_INPUTS], device[MOST_INPUTS];
    void *host_grads[MOST_INPUTS], *grads[MOST_INPUTS];
    for (size_t i = 0; i < c->count; ++i) {
        size_t count = length(c, i);
        int own = c->parameter[i] ? parameter_type : type;
        host_grads[i] = slopes[i] = malloc(count * sizeof(double));
        values[i] = malloc(count * sizeof(double));
        fill(values[i], count);
        host[i] = (fc_tensor){values[i], c->shapes[i], c->axes[i]};
        device[i] = (fc_tensor){moved(values[i], count, own), c->shapes[i], c->axes[i]};
        grads[i] = on_gpu(count * TYPE_BYTES[own]);
    }

    fc_plan plan;
    check(fc_plan_forward(op, host, c->count, &plan));
    double *output = malloc(plan.output_len * sizeof(double)), *saved = malloc(plan.saved_len * sizeof(double) + 1);
    double *grad_output = malloc(plan.output_len * sizeof(double));
    fill(grad_output, plan.output_len);
    check(fc_forward(op, FC_F64, host, c->count, output, saved));
    check(fc_backward(op, FC_F64, host, c->count, output, saved, grad_output, host_grads));

    fc_cuda_call call = {type, parameter_type, device, c->count, NULL, 0, stream};
    fc_cuda_plan sizes;
    check(fc_cuda_plan_call(gpu_op, &call, &sizes));
    if (sizes.output_len != plan.output_len || sizes.output_shape[2] != plan.output_shape[2]) return 0;
    size_t most = sizes.backward_workspace_bytes;
    if (sizes.forward_workspace_bytes > most) most = sizes.forward_workspace_bytes;
    call.workspace = on_gpu(most);
    call.workspace_bytes = most;
    void *gpu_output = on_gpu(sizes.output_len * TYPE_BYTES[type]), *gpu_saved = on_gpu(sizes.saved_bytes);
    void *gpu_grad_output = moved(grad_output, plan.output_len, type);
    check_cuda(cudaDeviceSynchronize());
    check(fc_cuda_forward(gpu_op, &call, gpu_output, gpu_saved));
    check(fc_cuda_backward(gpu_op, &call, gpu_output, gpu_saved, gpu_grad_output, grads));
    check_cuda(cudaStreamSynchronize(stream));

    double error = error_of(gpu_output, output, plan.output_len, type), slope_error = 0;
    for (size_t i = 0; i < c->count; ++i) {
        double own = error_of(grads[i], slopes[i], length(c, i), c->parameter[i] ? parameter_type : type);
        slope_error = own <= slope_error ? slope_error : own;
    }
    int right = error <= BOUNDS[type] && slope_error <= BOUNDS[type];
    printf("%-10s %s %-4s parameters %-4s workspace %7zu bytes  error %.1e, of gradients %.1e%s\n", c->name, c->algebra,
           TYPE_NAMES[type], TYPE_NAMES[parameter_type], most, error, slope_error, right ? "" : "  too large");

    /* Mistakes are messages, and launch nothing. */
    fc_cuda_call wrong = call;
    wrong.dtype = 9;
    right &= fc_cuda_forward(gpu_op, &wrong, gpu_output, gpu_saved) == FC_BAD_ARGUMENT;
    right &= strstr(fc_last_error(), "expected FC_F32") != NULL;
    right &= fc_cuda_forward(gpu_op, &call, (char *)gpu_output + 1, gpu_saved) == FC_BAD_ARGUMENT;
    right &= fc_cuda_forward(gpu_op, &call, NULL, gpu_saved) == FC_BAD_ARGUMENT;
    right &= fc_cuda_forward(gpu_op, &call, (void *)device[0].data, gpu_saved) == FC_BAD_ARGUMENT;
    if (sizes.backward_workspace_bytes) {
        wrong = call;
        wrong.workspace_bytes = 0;
        right &= fc_cuda_backward(gpu_op, &wrong, gpu_output, gpu_saved, gpu_grad_output, grads) == FC_BAD_ARGUMENT;
        right &= strstr(fc_last_error(), "workspace") != NULL;
    }

    for (size_t i = 0; i < c->count; ++i) {
        free(values[i]), free(slopes[i]);
        check_cuda(cudaFree((void *)device[i].data));
        check_cuda(cudaFree(grads[i]));
    }
    void *gpu_memory[] = {call.workspace, gpu_output, gpu_saved, gpu_grad_output};
    for (size_t i = 0; i < sizeof gpu_memory / sizeof *gpu_memory; ++i) check_cuda(cudaFree(gpu_memory[i]));
    free(output), free(saved), free(grad_output);
    fc_cuda_operator_free(gpu_op);
    fc_operator_free(op);
    return right;
}

int main(void) {
    fc_operator *op;
    fc_cuda_operator *gpu_op;
    check(fc_operator_new("cl200", FC_REVERSE, NULL, &op));
    int status = fc_cuda_operator_new(op, 0, FC_HIGHEST, &gpu_op);
    if (status == FC_NO_CUDA) {
        printf("no GPU: %s\n", fc_last_error());
        return 77;
    }
    check(status);
    fc_cuda_operator_free(gpu_op);
    if (fc_cuda_operator_new(op, 99, FC_HIGHEST, &gpu_op) != FC_NO_CUDA || gpu_op) return 1;
    printf("flashcliff %s; %s\n", fc_version(), fc_last_error());
    fc_operator_free(op);

    cudaStream_t stream;
    check_cuda(cudaSetDevice(0));
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int right = 1;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; ++i) {
        for (int type = FC_F32; type <= FC_F16; ++type) right &= agree(&CASES[i], type, type, stream);
        right &= agree(&CASES[i], FC_BF16, FC_F32, stream);
    }
    check_cuda(cudaStreamDestroy(stream));
    printf(right ? "all agree\n" : "some do not agree\n");
    return right ? 0 : 1;
}
