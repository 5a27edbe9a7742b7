/*
 * A network from a file, without Python and without a framework, compared with the results that Rust had.
 *
 *   cargo xtask install --prefix ~/flashcliff
 *   cargo run --release --package flashcliff-network --example store -- /tmp
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   cc network.c -o network $(pkg-config --cflags --libs flashcliff) && ./network /tmp/network.safetensors /tmp/tensors.f64
 */
#include <flashcliff.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The batch for which tensors.f64 has inputs and results. */
enum { SAMPLES = 3, ITEMS = 4, MOST = 8 };

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
    size_t inputs, outputs;
    check(fc_network_counts(network, &inputs, &outputs));
    if (inputs > MOST || outputs > MOST) return 1;
    double *given[MOST], *expected[MOST], *made[MOST];
    size_t lens[MOST];
    fc_network_end end;
    for (size_t i = 0; i < inputs; ++i) {
        check(fc_network_input(network, i, SAMPLES, ITEMS, &end));
        print("input", &end);
        given[i] = numbers(file, end.len);
    }
    for (size_t i = 0; i < outputs; ++i) {
        check(fc_network_output(network, i, SAMPLES, ITEMS, &end));
        print("output", &end);
        expected[i] = numbers(file, end.len);
        made[i] = malloc(end.len * sizeof(double) + 1);
        if (!made[i]) return 1;
        lens[i] = end.len;
    }
    fclose(file);

    /* The memory is taken once; the weights stay with the runner. */
    fc_network_runner *runner;
    check(fc_network_plan(network, SAMPLES, ITEMS, FC_F64, &runner));
    fc_network_free(network);
    const void *from[MOST];
    void *to[MOST];
    for (size_t i = 0; i < inputs; ++i) from[i] = given[i];
    for (size_t i = 0; i < outputs; ++i) to[i] = made[i];
    fc_network_call call = {from, inputs, to, outputs, NULL, 0};
    int same = 1;
    for (int run = 0; run < 2; ++run) {
        check(fc_network_run(runner, &call));
        for (size_t i = 0; i < outputs; ++i) same &= !memcmp(made[i], expected[i], lens[i] * sizeof(double));
    }
    printf(same ? "the results of Rust, bit for bit\n" : "other results than those of Rust\n");

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
