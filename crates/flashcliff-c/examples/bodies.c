/*
 * CGENN's network of charged bodies from a file, on graphs: relations say which body an edge comes from and goes to, and which graph a body belongs to. The
 * results are compared with those that Rust had, and the gradient of the bodies with a difference.
 *
 *   cargo xtask install --prefix ~/flashcliff
 *   cargo run --release --package flashcliff-network --example store -- /tmp
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   cc bodies.c -o bodies $(pkg-config --cflags --libs flashcliff) -lm && ./bodies /tmp/bodies.safetensors /tmp/bodies.f64
 */
#include <flashcliff.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Graphs for which bodies.f64 has bodies and results; in each of them all bodies are neighbours. */
enum { GRAPHS = 2, EACH = 3, NODES = GRAPHS * EACH, EDGES = NODES * (EACH - 1), RELATIONS = 3, NUMBERS = 7 };
static const fc_network_batch BATCH = {.samples = NODES, .items = 1, .edges = EDGES, .graphs = GRAPHS};

static void check(int status) {
    if (status != FC_OK) {
        fprintf(stderr, "status %d: %s\n", status, fc_last_error());
        exit(1);
    }
}

/* Sorts the relations once, for all runs. */
static void relate(fc_relation **relations) {
    uint32_t receivers[EDGES], senders[EDGES], graphs[NODES];
    size_t edge = 0;
    for (uint32_t i = 0; i < NODES; ++i) {
        graphs[i] = i / EACH;
        for (uint32_t j = i / EACH * EACH; j < (i / EACH + 1) * EACH; ++j)
            if (j != i) receivers[edge] = i, senders[edge++] = j;
    }
    check(fc_relation_new(receivers, EDGES, NODES, &relations[0]));
    check(fc_relation_new(senders, EDGES, NODES, &relations[1]));
    check(fc_relation_new(graphs, NODES, GRAPHS, &relations[2]));
}

static void read_numbers(FILE *file, double *to, size_t count) {
    if (fread(to, sizeof *to, count, file) != count) {
        fprintf(stderr, "expected %zu more numbers\n", count);
        exit(1);
    }
}

static double half_of_squares(const double *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += 0.5 * x[i] * x[i];
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: bodies bodies.safetensors bodies.f64\n");
        return 2;
    }
    fc_network *network;
    check(fc_network_load(argv[1], &network));
    size_t inputs, outputs, parameters, count;
    check(fc_network_counts(network, &inputs, &outputs, &parameters));
    check(fc_network_relation_count(network, &count));
    if (inputs != 1 || outputs != 1 || count != RELATIONS) return 1;
    for (size_t i = 0; i < count; ++i) {
        fc_network_relation_end end;
        check(fc_network_relation(network, i, BATCH, &end));
        printf("relation %s: %zu rows to %zu targets\n", end.name, end.rows, end.targets);
    }
    fc_relation *relations[RELATIONS];
    relate(relations);

    double bodies[NODES * NUMBERS], expected[3 * NODES], moved[3 * NODES], grad[NODES * NUMBERS];
    FILE *file = fopen(argv[2], "rb");
    if (!file) {
        perror(argv[2]);
        return 1;
    }
    read_numbers(file, bodies, NODES * NUMBERS);
    read_numbers(file, expected, 3 * NODES);
    fclose(file);

    /* The gradient of the bodies, and none of the parameters. */
    int *wanted = calloc(inputs + parameters, sizeof *wanted);
    void **grads = calloc(inputs + parameters, sizeof *grads);
    if (!wanted || !grads) return 1;
    wanted[0] = 1;
    grads[0] = grad;
    fc_network_runner *runner;
    check(fc_network_plan(network, BATCH, FC_F64, wanted, inputs + parameters, &runner));
    fc_network_call call = {.inputs = (const void *[]){bodies},
                            .input_count = 1,
                            .outputs = (void *[]){moved},
                            .output_count = 1,
                            .relations = (const fc_relation *const *)relations,
                            .relation_count = RELATIONS};
    const fc_network_gradients gradients = {(const void *[]){moved}, 1, grads, inputs + parameters};
    check(fc_network_run(runner, &call));
    int right = !memcmp(moved, expected, sizeof moved);
    printf(right ? "the results of Rust, bit for bit\n" : "other results than those of Rust\n");
    check(fc_network_backward(runner, &call, &gradients));

    /* Along the gradient. */
    double slope = 0, sides[2], step[NODES * NUMBERS];
    for (size_t i = 0; i < NODES * NUMBERS; ++i) slope += grad[i] * grad[i];
    slope = sqrt(slope);
    call.inputs = (const void *[]){step};
    for (int side = 0; side < 2; ++side) {
        for (size_t i = 0; i < NODES * NUMBERS; ++i) step[i] = bodies[i] + (side ? -1e-6 : 1e-6) * grad[i] / slope;
        check(fc_network_run(runner, &call));
        sides[side] = half_of_squares(moved, 3 * NODES);
    }
    const double difference = (sides[0] - sides[1]) / 2e-6;
    printf("slope %.6g, by a difference %.6g\n", slope, difference);
    right &= fabs(difference - slope) < 1e-6 * slope;

    /* Mistakes are messages. */
    fc_relation *none;
    if (fc_relation_new((uint32_t[]){0, NODES}, 2, NODES, &none) != FC_BAD_ARGUMENT || none) return 1;
    printf("%s\n", fc_last_error());
    call.relation_count = 2;
    if (fc_network_run(runner, &call) != FC_BAD_ARGUMENT) return 1;
    printf("%s\n", fc_last_error());
    fc_network_runner_free(runner);
    for (int i = 0; i < RELATIONS; ++i) fc_relation_free(relations[i]);
    fc_network_free(network);
    free(wanted), free(grads);
    return !right;
}
