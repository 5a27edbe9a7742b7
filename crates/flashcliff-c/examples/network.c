/*
 * A network from a file, without Python and without a framework, compared with the results that Rust had. Then its gradients, compared with
 * differences of the result, and steps down along those of its parameters.
 *
 *   cargo xtask install --prefix ~/flashcliff
 *   cargo run --release --package flashcliff-network --example store -- /tmp
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   cc network.c -o network $(pkg-config --cflags --libs flashcliff) -lm && ./network /tmp/network.safetensors /tmp/tensors.f64
 */
#include <flashcliff.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The batch for which tensors.f64 has inputs and results. */
static const fc_network_batch BATCH = {.samples = 3, .items = 4};

enum { MOST = 8, STEPS = 5 };

static void check(int status) {
    if (status != FC_OK) {
        fprintf(stderr, "status %d: %s\n", status, fc_last_error());
        exit(1);
    }
}

static void print(const char *what, const fc_network_end *end) {
    printf("%s %s [", what, end->name);
    for (size_t axis = 0; axis < end->axes; ++axis) printf(axis ? ", %zu" : "%zu", end->shape[axis]);
    printf("]\n");
}

/* Reads the next numbers of a file. */
static double *numbers(FILE *file, size_t len) {
    double *data = malloc(len * sizeof *data + 1);
    if (!data || fread(data, sizeof *data, len, file) != len) {
        fprintf(stderr, "expected %zu more numbers\n", len);
        exit(1);
    }
    return data;
}

/* Memory for numbers. */
static double *room(size_t len) {
    double *data = calloc(len + 1, sizeof *data);
    if (!data) exit(1);
    return data;
}

/*
 * Half the sum of the squares of the first output, whose gradient is the output. The gradients of the first input and of all parameters are
 * compared with a difference, then the parameters go down along theirs.
 */
static int train(const fc_network *network, const void *const *inputs) {
    size_t input_count, outputs, count;
    check(fc_network_counts(network, &input_count, &outputs, &count));
    if (outputs != 1) return 1;
    fc_network_end end;
    check(fc_network_output(network, 0, BATCH, &end));
    double *output = room(end.len);
    const size_t len = end.len;

    /* The parameters are the caller's, who changes them. */
    double **parameters = calloc(count, sizeof *parameters), **grads = calloc(count, sizeof *grads);
    size_t *lens = calloc(count, sizeof *lens);
    int *wanted = calloc(input_count + count, sizeof *wanted);
    void **into = calloc(input_count + count, sizeof *into);
    if (!parameters || !grads || !lens || !wanted || !into) return 1;
    for (size_t i = 0; i < count; ++i) {
        check(fc_network_parameter(network, i, &end));
        lens[i] = end.len;
        parameters[i] = room(end.len);
        grads[i] = room(end.len);
        check(fc_network_parameter_values(network, i, FC_F64, parameters[i]));
        wanted[input_count + i] = 1;
        into[input_count + i] = grads[i];
    }
    check(fc_network_input(network, 0, BATCH, &end));
    const size_t input_len = end.len;
    double *grad = room(input_len), *moved = room(input_len);
    wanted[0] = 1;
    into[0] = grad;

    fc_network_runner *runner;
    check(fc_network_plan(network, BATCH, FC_F64, wanted, input_count + count, &runner));
    const void *from[MOST];
    for (size_t i = 0; i < input_count; ++i) from[i] = inputs[i];
    void *to[1] = {output};
    const void *of_output[1] = {output};
    const fc_network_call call = {.inputs = from,
                                  .input_count = input_count,
                                  .outputs = to,
                                  .output_count = 1,
                                  .parameters = (const void *const *)parameters,
                                  .parameter_count = count};
    const fc_network_gradients gradients = {of_output, 1, into, input_count + count};
    double losses[STEPS + 1], sides[2], slope = 0;
    for (int step = 0; step <= STEPS; ++step) {
        check(fc_network_run(runner, &call));
        losses[step] = 0;
        for (size_t i = 0; i < len; ++i) losses[step] += 0.5 * output[i] * output[i];
        check(fc_network_backward(runner, &call, &gradients));
        double squares = 0;
        for (size_t i = 0; i < count; ++i)
            for (size_t j = 0; j < lens[i]; ++j) squares += grads[i][j] * grads[i][j];
        if (step == 0) {
            /* Along the gradient of the first input. */
            for (size_t i = 0; i < input_len; ++i) slope += grad[i] * grad[i];
            slope = sqrt(slope);
            for (int side = 0; side < 2; ++side) {
                for (size_t i = 0; i < input_len; ++i)
                    moved[i] = ((const double *)inputs[0])[i] + (side ? -1e-6 : 1e-6) * grad[i] / slope;
                from[0] = moved;
                check(fc_network_run(runner, &call));
                sides[side] = 0;
                for (size_t i = 0; i < len; ++i) sides[side] += 0.5 * output[i] * output[i];
            }
            from[0] = inputs[0];
        }
        /* A step that lowers a linear function by a hundredth of the first loss. */
        for (size_t i = 0; i < count; ++i)
            for (size_t j = 0; j < lens[i]; ++j) parameters[i][j] -= 0.01 * losses[0] / squares * grads[i][j];
    }
    const double difference = (sides[0] - sides[1]) / 2e-6;
    const int right = fabs(difference - slope) < 1e-6 * slope && losses[STEPS] < 0.97 * losses[0];
    printf("slope %.6g, by a difference %.6g; loss %.6g to %.6g\n", slope, difference, losses[0], losses[STEPS]);
    fc_network_runner_free(runner);
    for (size_t i = 0; i < count; ++i) free(parameters[i]), free(grads[i]);
    free(parameters), free(grads), free(lens), free(wanted), free(into), free(grad), free(moved), free(output);
    return !right;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: network network.safetensors tensors.f64\n");
        return 2;
    }
    fc_network *network;
    check(fc_network_load(argv[1], &network));
    FILE *file = fopen(argv[2], "rb");
    if (!file) {
        perror(argv[2]);
        return 1;
    }
    size_t inputs, outputs, parameters;
    check(fc_network_counts(network, &inputs, &outputs, &parameters));
    if (inputs > MOST || outputs > MOST) return 1;
    double *given[MOST], *expected[MOST], *made[MOST];
    size_t lens[MOST];
    fc_network_end end;
    for (size_t i = 0; i < inputs; ++i) {
        check(fc_network_input(network, i, BATCH, &end));
        print("input", &end);
        given[i] = numbers(file, end.len);
    }
    for (size_t i = 0; i < outputs; ++i) {
        check(fc_network_output(network, i, BATCH, &end));
        print("output", &end);
        expected[i] = numbers(file, end.len);
        made[i] = malloc(end.len * sizeof(double) + 1);
        if (!made[i]) return 1;
        lens[i] = end.len;
    }
    fclose(file);

    /* The memory is taken once; the weights stay with the runner. */
    fc_network_runner *runner;
    check(fc_network_plan(network, BATCH, FC_F64, NULL, 0, &runner));

    /* The page says what runs; the times are those of a machine with these rates. */
    const fc_machine machine = {.bytes_per_second = 50e9, .flops_per_second = 1e12, .seconds_per_call = 1e-6};
    const char *page;
    check(fc_network_explain(runner, &machine, &page));
    if (!strstr(page, "equivariant_linear") || !strstr(page, ", modelled ")) return 1;
    printf("%s", page);

    const void *from[MOST];
    void *to[MOST];
    for (size_t i = 0; i < inputs; ++i) from[i] = given[i];
    for (size_t i = 0; i < outputs; ++i) to[i] = made[i];
    fc_network_call call = {.inputs = from, .input_count = inputs, .outputs = to, .output_count = outputs};
    int same = 1;
    for (int run = 0; run < 2; ++run) {
        check(fc_network_run(runner, &call));
        for (size_t i = 0; i < outputs; ++i) same &= !memcmp(made[i], expected[i], lens[i] * sizeof(double));
    }
    printf(same ? "the results of Rust, bit for bit\n" : "other results than those of Rust\n");
    same &= !train(network, from);
    fc_network_free(network);

    /* Mistakes are messages. */
    fc_network *none;
    if (fc_network_load("no_such_file", &none) != FC_BAD_FILE || none) return 1;
    printf("%s\n", fc_last_error());
    call.input_count = 0;
    if (fc_network_run(runner, &call) != FC_BAD_ARGUMENT) return 1;
    printf("%s\n", fc_last_error());
    fc_network_runner_free(runner);
    for (size_t i = 0; i < inputs; ++i) free(given[i]);
    for (size_t i = 0; i < outputs; ++i) free(expected[i]), free(made[i]);
    return same ? 0 : 1;
}
