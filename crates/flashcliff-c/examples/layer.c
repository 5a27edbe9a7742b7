/*
 * A gated, weighted geometric product of the plane with its gradients, compared with the formula written out below.
 *
 *   cargo xtask install --prefix ~/flashcliff
 *   export PKG_CONFIG_PATH=~/flashcliff/lib/pkgconfig LD_LIBRARY_PATH=~/flashcliff/lib
 *   cc layer.c -o layer $(pkg-config --cflags --libs flashcliff) -lm && ./layer
 */
#include <flashcliff.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLADES = 4, BATCH = 5, CHANNELS = 7, PATHS = 10, LANES = BATCH * CHANNELS };

/* 1, e1, e2, e12: the blade of a product, and its sign, from 2x2 real matrices that multiply as blades do. */
static const int MATRIX[BLADES][4] = {{1, 0, 0, 1}, {1, 0, 0, -1}, {0, 1, 1, 0}, {0, 1, -1, 0}};
static const int GRADE[BLADES] = {0, 1, 1, 2};

static void blade_product(int a, int b, int *blade, int *sign) {
    const int *m = MATRIX[a], *n = MATRIX[b];
    int p[4] = {m[0] * n[0] + m[1] * n[2], m[0] * n[1] + m[1] * n[3], m[2] * n[0] + m[3] * n[2],
                m[2] * n[1] + m[3] * n[3]};
    for (*blade = 0; *blade < BLADES; ++*blade)
        for (*sign = 1; *sign >= -1; *sign -= 2) {
            int same = 1;
            for (int i = 0; i < 4; ++i) same &= p[i] == *sign * MATRIX[*blade][i];
            if (same) return;
        }
    abort();
}

/* Paths are triples of grades, (left, output, right), in lexicographic order. */
static int path_of(int left, int output, int right) {
    int index = 0;
    for (int l = 0; l <= 2; ++l)
        for (int o = 0; o <= 2; ++o)
            for (int r = 0; r <= 2; ++r) {
                int exists = 0;
                for (int a = 0; a < BLADES; ++a)
                    for (int b = 0; b < BLADES; ++b) {
                        int blade, sign;
                        blade_product(a, b, &blade, &sign);
                        exists |= GRADE[a] == l && GRADE[blade] == o && GRADE[b] == r;
                    }
                if (l == left && o == output && r == right) return index;
                index += exists;
            }
    abort();
}

static double silu_gate(double scalar) { return 1 / (1 + exp(-scalar)); }

static void formula(const double *x, const double *y, const double *w, double *o) {
    memset(o, 0, BLADES * LANES * sizeof *o);
    for (int lane = 0; lane < LANES; ++lane)
        for (int a = 0; a < BLADES; ++a)
            for (int b = 0; b < BLADES; ++b) {
                int blade, sign;
                blade_product(a, b, &blade, &sign);
                int path = path_of(GRADE[a], GRADE[blade], GRADE[b]);
                double left = silu_gate(x[lane]) * x[a * LANES + lane];
                double right = silu_gate(y[lane]) * y[b * LANES + lane];
                o[blade * LANES + lane] += sign * w[lane % CHANNELS * PATHS + path] * left * right;
            }
}

static void fill(double *values, size_t count) {
    for (size_t i = 0; i < count; ++i) values[i] = 2.0 * rand() / RAND_MAX - 1;
}

static void check(int status) {
    if (status != FC_OK) {
        fprintf(stderr, "status %d: %s\n", status, fc_last_error());
        exit(1);
    }
}

int main(void) {
    static double x[BLADES * LANES], y[BLADES * LANES], w[CHANNELS * PATHS];
    static double o[BLADES * LANES], expected[BLADES * LANES], grad_o[BLADES * LANES];
    static double grad_x[BLADES * LANES], grad_w[CHANNELS * PATHS];
    const size_t lanes[] = {BLADES, BATCH, CHANNELS}, paths[] = {CHANNELS, PATHS};
    fill(x, BLADES * LANES), fill(y, BLADES * LANES), fill(w, CHANNELS * PATHS), fill(grad_o, BLADES * LANES);

    fc_operator *op;
    check(fc_operator_new("cl200", FC_SGP_NORM, "gate=silu norm=none", &op));
    fc_tensor inputs[] = {{x, lanes, 3}, {y, lanes, 3}, {w, paths, 2}};
    fc_plan plan;
    check(fc_plan_forward(op, inputs, 3, &plan));
    if (plan.output_axes != 3 || plan.output_len != BLADES * LANES) return 1;
    double *saved = malloc(plan.saved_len * sizeof *saved + 1);
    check(fc_forward(op, FC_F64, inputs, 3, o, saved));
    formula(x, y, w, expected);
    double error = 0;
    for (int i = 0; i < BLADES * LANES; ++i) error = fmax(error, fabs(o[i] - expected[i]));

    /* The gradient of sum(grad_o * o), without that of y, beside differences of the formula. */
    void *grads[] = {grad_x, NULL, grad_w};
    check(fc_backward(op, FC_F64, inputs, 3, o, saved, grad_o, grads));
    double slope_error = 0;
    double *values[] = {x, w}, *slopes[] = {grad_x, grad_w};
    const size_t counts[] = {BLADES * LANES, CHANNELS * PATHS};
    for (int which = 0; which < 2; ++which)
        for (size_t i = 0; i < counts[which]; ++i) {
            const double step = 1e-5, value = values[which][i];
            double slope = 0;
            for (int side = -1; side <= 1; side += 2) {
                values[which][i] = value + side * step;
                formula(x, y, w, expected);
                for (int j = 0; j < BLADES * LANES; ++j) slope += side * grad_o[j] * expected[j] / (2 * step);
            }
            values[which][i] = value;
            slope_error = fmax(slope_error, fabs(slope - slopes[which][i]));
        }
    printf("flashcliff %s: error %.1e, of gradients %.1e\n", fc_version(), error, slope_error);

    /* Mistakes are messages. */
    fc_operator *none;
    if (fc_operator_new("cl200", "no_such_operator", NULL, &none) != FC_BAD_ARGUMENT || none) return 1;
    printf("%s\n", fc_last_error());
    if (!strstr(fc_last_error(), "no_such_operator")) return 1;
    if (fc_operator_new("cl200", FC_SGP_NORM, "gate", &none) != FC_BAD_ARGUMENT) return 1;
    if (fc_operator_new(NULL, FC_SGP_NORM, NULL, &none) != FC_BAD_ARGUMENT) return 1;
    if (fc_forward(op, 7, inputs, 3, o, saved) != FC_BAD_ARGUMENT) return 1;
    if (fc_forward(op, FC_F64, inputs, 3, x, saved) != FC_BAD_ARGUMENT) return 1;
    if (fc_forward(op, FC_F64, inputs, 2, o, saved) != FC_BAD_ARGUMENT) return 1;
    if (fc_forward(op, FC_F64, inputs, 3, NULL, saved) != FC_BAD_ARGUMENT) return 1;
    if (fc_forward(NULL, FC_F64, inputs, 3, o, saved) != FC_BAD_ARGUMENT) return 1;
    /* On a GPU the same operator takes addresses there: see cuda.c. A library for the CPU, and a machine without a GPU, say so. */
    fc_cuda_operator *on_gpu;
    int status = fc_cuda_operator_new(op, 0, FC_HIGHEST, &on_gpu);
    if (status == FC_OK) {
        printf("there is a GPU\n");
    } else {
        printf("no GPU: %s\n", fc_last_error());
        if (status != FC_NO_CUDA || on_gpu || !strlen(fc_last_error())) return 1;
    }
    fc_cuda_operator_free(on_gpu);
    if (fc_cuda_operator_new(op, -1, FC_HIGHEST, &on_gpu) != FC_BAD_ARGUMENT) return 1;
    if (fc_cuda_operator_new(op, 0, 7, &on_gpu) != FC_BAD_ARGUMENT) return 1;
    if (fc_cuda_operator_new(NULL, 0, FC_HIGHEST, &on_gpu) != FC_BAD_ARGUMENT) return 1;
    if (fc_cuda_forward(NULL, NULL, NULL, NULL) != FC_BAD_ARGUMENT) return 1;
    free(saved);
    fc_operator_free(op);
    return error < 1e-13 && slope_error < 1e-8 ? 0 : 1;
}
