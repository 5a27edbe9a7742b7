/*
 * The operators of flashcliff for C, and networks from files, on the CPU and on NVIDIA GPUs. Written by cargo xtask gen.
 *
 * Tensors are [blades, batch, channels], channels contiguous. Blades are in the order of grades, then of vectors: 1, e1, e2, e12;
 * null vectors come first, as e0. Results do not depend on the number of threads.
 *
 * Functions that can fail return FC_OK or another status. fc_last_error() then says what was expected and what came.
 * Operators do not change; threads may share them. Unwanted pointers are NULL.
 *
 * Programs are in crates/flashcliff-c/examples of the repository; their first lines say how to compile and link them.
 */
#ifndef FLASHCLIFF_H
#define FLASHCLIFF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The results of functions. */
#define FC_OK 0
/* An argument is wrong: a name, a shape, a type, an address. */
#define FC_BAD_ARGUMENT 1
/* There is no such operator between these grades. */
#define FC_UNSUPPORTED 2
/* A fault of the library. */
#define FC_INTERNAL 3
/* No GPU can be used: the library was built without CUDA, or there is no driver or no such GPU. */
#define FC_NO_CUDA 4
/* A call of CUDA failed. */
#define FC_CUDA_FAILED 5
/* A file cannot be read, or has no network that this version of the library can run. */
#define FC_BAD_FILE 6

/* The types of elements. On the CPU all tensors of a call have one, FC_F32 or FC_F64. */
#define FC_F32 0
#define FC_F64 1
#define FC_BF16 2
#define FC_F16 3

/* The largest number of axes of an output, and of an input of a network. */
#define FC_MAX_AXES 4

/* Upper bound on the sets of rows of a batch beside those with names. */
#define FC_MAX_OTHERS 3

/* An operator of an algebra, with settings. */
typedef struct fc_operator fc_operator;

/* An input: elements, and a shape of as many numbers as there are axes. */
typedef struct fc_tensor {
    const void *data;
    const size_t *shape;
    size_t axes;
} fc_tensor;

/* The sizes of what a forward pass writes, in elements. */
typedef struct fc_plan {
    size_t output_shape[FC_MAX_AXES];
    size_t output_axes;
    size_t output_len;
    /* What the backward pass needs beside inputs and output; may be 0. */
    size_t saved_len;
} fc_plan;

/* The version of the library. */
const char *fc_version(void);

/* The message of the last call in this thread that failed. It is valid until the next call that fails. */
const char *fc_last_error(void);

/*
 * Makes an operator: of an algebra, such as "cl300" or "3,0,0", by its name, with settings such as "gate=silu norm=none left=0,2" or
 * NULL for none. Each setting stands there at most once; those that are not given have their defaults. After a failure *out is NULL.
 */
int fc_operator_new(const char *algebra, const char *name, const char *settings, fc_operator **out);

/* Frees an operator, or does nothing with NULL. */
void fc_operator_free(fc_operator *op);

/* Checks the shapes of the inputs and says how much the forward pass writes. It does not read their elements. */
int fc_plan_forward(const fc_operator *op, const fc_tensor *inputs, size_t count, fc_plan *plan);

/* Writes the output, and what the backward pass needs: as many elements as fc_plan_forward says. They overlap nothing else. */
int fc_forward(const fc_operator *op, int dtype, const fc_tensor *inputs, size_t count, void *output, void *saved);

/*
 * Writes the gradients of the inputs from that of the output. grads has a pointer for each input, NULL where the gradient is not wanted;
 * output and saved are what fc_forward wrote.
 */
int fc_backward(const fc_operator *op, int dtype, const fc_tensor *inputs, size_t count, const void *output,
                const void *saved, const void *grad_output, void *const *grads);

/*
 * Networks with their weights, from files that flashcliff_network::file of the Rust crate and flashcliff.save_network in Python write. A
 * network is loaded once, planned for a batch and a type, and run on tensors of the caller. Runs need no Python and no framework, and have the
 * bits of the same network in Rust.
 *
 * Rows are all items of all samples. Tokens of transformers are [rows, numbers of a token]: the multivectors blade by blade with channels
 * innermost, then the scalars.
 *
 * Networks do not change; threads may share them. A runner is of one thread at a time; several runners share the weights.
 */

/* A network with its weights. */
typedef struct fc_network fc_network;

/* A network planned for a batch, with the memory of its values. */
typedef struct fc_network_runner fc_network_runner;

/*
 * A relation: for each row of one axis, such as an edge, the row of another one that it belongs to, such as a node. Rows are sorted by their targets once;
 * runs of any network share it, on the CPU and on GPUs, and threads may, too. It does not change.
 */
typedef struct fc_relation fc_relation;

/* A batch: samples of as many items each, of one in networks without items. Nodes of graphs are samples of one item. */
typedef struct fc_network_batch {
    size_t samples;
    size_t items;
    /* The items that those of a sample attend to, in networks with cross-attention; else 0. */
    size_t context_items;
    /* The edges and the graphs of all samples, in networks with relations; else 0. */
    size_t edges;
    size_t graphs;
    /* The rows of further sets, in networks that have them, such as the simplices of each dimension; else 0. */
    size_t others[FC_MAX_OTHERS];
} fc_network_batch;

/* The name of a relation of a network, and how many rows and targets it has. The name lives as long as the network. */
typedef struct fc_network_relation_end {
    const char *name;
    size_t rows;
    size_t targets;
} fc_network_relation_end;

/* The name and the shape of an input, an output or a parameter. The name lives as long as the network. */
typedef struct fc_network_end {
    const char *name;
    size_t shape[FC_MAX_AXES];
    size_t axes;
    size_t len;
} fc_network_end;

/* The tensors of a run: the addresses of inputs, outputs and parameters in the order of the network. */
typedef struct fc_network_call {
    const void *const *inputs;
    size_t input_count;
    void *const *outputs;
    size_t output_count;
    /*
     * For a ragged batch, planned as one sample: where each sequence begins among the rows, then the number of rows; the same of as many
     * sequences of the context, if there is one. Items attend within their sequence. NULL and 0 for none: each sample is a sequence.
     */
    const size_t *offsets;
    size_t offset_count;
    const size_t *context_offsets;
    size_t context_offset_count;
    /* Parameters of the caller, which may change from run to run. NULL and 0 for those of the file. */
    const void *const *parameters;
    size_t parameter_count;
    /* The relations in the order of the network. NULL and 0 for none. */
    const fc_relation *const *relations;
    size_t relation_count;
} fc_network_call;

/* The gradients of a run, of a function of the outputs. */
typedef struct fc_network_gradients {
    /* By each output. */
    const void *const *outputs;
    size_t output_count;
    /* By each input, then by each parameter: written where the plan has them, and else NULL. */
    void *const *grads;
    size_t grad_count;
} fc_network_gradients;

/* Loads a network from a file. After a failure *out is NULL. */
int fc_network_load(const char *path, fc_network **out);

/* Frees a network, or does nothing with NULL. Its runners stay. */
void fc_network_free(fc_network *network);

/* Writes the numbers of inputs, outputs and parameters. */
int fc_network_counts(const fc_network *network, size_t *inputs, size_t *outputs, size_t *parameters);

/* Writes the number of relations. */
int fc_network_relation_count(const fc_network *network, size_t *count);

/* Writes the name and the sizes of a relation for a batch. */
int fc_network_relation(const fc_network *network, size_t index, fc_network_batch batch, fc_network_relation_end *end);

/*
 * Makes a relation of so many rows from the number of the target of each, from 0 to count - 1; any other number is an error. The numbers are copied, and
 * may be in any order. After a failure *out is NULL.
 */
int fc_relation_new(const uint32_t *targets, size_t rows, size_t count, fc_relation **out);

/* Does the same with 64-bit numbers. */
int fc_relation_new_i64(const int64_t *targets, size_t rows, size_t count, fc_relation **out);

/* Frees a relation, or does nothing with NULL. No run reads it any more: on a GPU, the work of its stream is done. */
void fc_relation_free(fc_relation *relation);

/* Writes the name and the shape of an input for a batch. */
int fc_network_input(const fc_network *network, size_t index, fc_network_batch batch, fc_network_end *end);

/* Writes the name and the shape of an output for a batch. */
int fc_network_output(const fc_network *network, size_t index, fc_network_batch batch, fc_network_end *end);

/* Writes the name and the shape of a parameter. */
int fc_network_parameter(const fc_network *network, size_t index, fc_network_end *end);

/* Copies a parameter of the file, in FC_F32 or FC_F64, to which it is rounded. */
int fc_network_parameter_values(const fc_network *network, size_t index, int dtype, void *values);

/*
 * Plans a network for a batch and takes the memory of its values, once for all runs. dtype is FC_F32 or FC_F64; weights of the other type
 * are rounded to it. wanted says by a number other than 0 for each input and then for each parameter whether there are to be gradients by
 * it; NULL and 0 for none. With gradients runs keep what these need, which is more memory. A gradient that the network does not have is
 * an error: by a mask, and by what no output depends on. After a failure *out is NULL.
 */
int fc_network_plan(const fc_network *network, fc_network_batch batch, int dtype, const int *wanted, size_t wanted_count,
                    fc_network_runner **out);

/* Frees a runner, or does nothing with NULL. */
void fc_network_runner_free(fc_network_runner *runner);

/*
 * Writes the outputs, which overlap nothing else. All tensors have the type of the plan. The first run of a runner without gradients, by
 * the parameters of the file, copies the weights of transformers in the order in which runs read them: two to three times the memory of
 * the weights. After it, operators allocate nothing; steps of transformers, and runs with gradients, take small buffers from the allocator while
 * they run.
 */
int fc_network_run(fc_network_runner *runner, const fc_network_call *call);

/*
 * Writes the gradients that were planned, which overlap nothing else. call is that of the last run, whose tensors have what they had then. It
 * may be called again with other gradients of the outputs. Gradients of parameters are sums over the batch, in a fixed order.
 */
int fc_network_backward(fc_network_runner *runner, const fc_network_call *call, const fc_network_gradients *gradients);

/* The rates of a machine: from its data sheet, or measured. */
typedef struct fc_machine {
    /* The bytes a second that are read or written in memory, and the floating-point operations a second, both above 0. */
    double bytes_per_second;
    double flops_per_second;
    /* The seconds of a call with next to no work. */
    double seconds_per_call;
} fc_machine;

/*
 * Gives a page on a plan: a line for each call, in order, with its shapes, the bytes that it moves and its floating-point operations, with a
 * machine also its modelled time, which is a lower bound; then the memory, and what would be faster on a GPU. machine may be NULL; one whose
 * rates are not above 0 is FC_BAD_ARGUMENT. The text lives until the next call of this function or of fc_cuda_network_explain in this thread.
 * After a failure *page is NULL.
 */
int fc_network_explain(const fc_network_runner *runner, const fc_machine *machine, const char **page);

/*
 * On GPUs. The functions are in every library; one that was installed without --cuda gives FC_NO_CUDA and says so.
 *
 * Data, output, saved, gradients and workspace are addresses on the GPU; shapes, and the list of gradients, are memory of the CPU. The
 * caller allocates everything, to multiples of 256 bytes as cudaMalloc does. Calls launch work on the caller's stream, a cudaStream_t of the
 * primary context, NULL for the default one, and never wait; memory must stay until the stream has done the work. After
 * fc_cuda_plan_call, calls can be captured into a graph; operators with matrix products need one call before that.
 */

/* Matrix products of FC_F32 in full precision, or with operands rounded to TF32. */
#define FC_HIGHEST 0
#define FC_TF32 1

/* An operator on a GPU. */
typedef struct fc_cuda_operator fc_cuda_operator;

/* What both passes of a call have in common. */
typedef struct fc_cuda_call {
    /* The type of tensors with a batch, and of the output; 16-bit types are computed in FC_F32. */
    int dtype;
    /* The type of parameters: the same, or FC_F32 beside a 16-bit type. */
    int parameter_dtype;
    const fc_tensor *inputs;
    size_t count;
    /* Memory of as many bytes as fc_cuda_plan says, or NULL for none. Its contents do not matter. */
    void *workspace;
    size_t workspace_bytes;
    void *stream;
} fc_cuda_call;

/* The sizes of a call's memory. */
typedef struct fc_cuda_plan {
    size_t output_shape[FC_MAX_AXES];
    size_t output_axes;
    size_t output_len;
    /* What the backward pass needs beside inputs and output; may be 0. */
    size_t saved_bytes;
    size_t forward_workspace_bytes;
    /* The workspace of a backward pass with all gradients. */
    size_t backward_workspace_bytes;
} fc_cuda_plan;

/* Binds an operator to a GPU, with FC_HIGHEST or FC_TF32. The operator may be freed afterwards. After a failure *out is NULL. */
int fc_cuda_operator_new(const fc_operator *op, int device, int precision, fc_cuda_operator **out);

/* Frees an operator on a GPU, or does nothing with NULL. */
void fc_cuda_operator_free(fc_cuda_operator *op);

/* Checks types and shapes, loads or compiles the kernels, and says how much memory the call needs. Reads no data. */
int fc_cuda_plan_call(const fc_cuda_operator *op, const fc_cuda_call *call, fc_cuda_plan *plan);

/* Launches the forward pass. saved may be NULL if there is to be no backward pass, unless the operator needs it in any case. */
int fc_cuda_forward(const fc_cuda_operator *op, const fc_cuda_call *call, void *output, void *saved);

/* Launches the backward pass; otherwise as fc_backward. */
int fc_cuda_backward(const fc_cuda_operator *op, const fc_cuda_call *call, const void *output, const void *saved,
                     const void *grad_output, void *const *grads);

/* A network planned for a batch on a GPU, with the weights of its file there. Threads may share it. */
typedef struct fc_cuda_network fc_cuda_network;

/* The sizes of the memory of runs on a GPU. */
typedef struct fc_cuda_network_sizes {
    /* What gradients need of a run; 0 for a plan without gradients. */
    size_t kept_bytes;
    /* What a run, and what gradients work in. Its contents do not matter. */
    size_t run_workspace_bytes;
    size_t backward_workspace_bytes;
} fc_cuda_network_sizes;

/* A run on a GPU. */
typedef struct fc_cuda_network_call {
    /*
     * Inputs, outputs and parameters are addresses on the GPU; the lists of them, and offsets, are memory of the CPU. Without parameters those
     * of the file are read. Relations are those of the CPU: the first call with one copies it to the GPU and waits, and so cannot be captured.
     */
    fc_network_call tensors;
    /* The offsets as 32-bit integers on the GPU; NULL for none. */
    const void *device_offsets;
    const void *device_context_offsets;
    void *kept;
    size_t kept_bytes;
    void *workspace;
    size_t workspace_bytes;
    void *stream;
} fc_cuda_network_call;

/*
 * Plans a network for a batch on a GPU, with FC_HIGHEST or FC_TF32, and copies its weights there, which waits. Takes no other memory. The network
 * may be freed afterwards. The rest is as for fc_network_plan; a batch has some elements. Transformers have algebras of 2 to 5 dimensions here.
 * After a failure *out is NULL.
 */
int fc_cuda_network_plan(const fc_network *network, fc_network_batch batch, int dtype, const int *wanted, size_t wanted_count,
                         int device, int precision, fc_cuda_network **out);

/* Frees a network on a GPU, or does nothing with NULL. The work of its runs is done. */
void fc_cuda_network_free(fc_cuda_network *network);

/*
 * Gives the page of fc_network_explain with the names of the kernels that each call launches, for each sample as one sequence. Launches nothing,
 * but compiles kernels that the library does not have.
 */
int fc_cuda_network_explain(const fc_cuda_network *network, const fc_machine *machine, const char **page);

/* Says how much memory runs need. */
int fc_cuda_network_sizes_of(const fc_cuda_network *network, fc_cuda_network_sizes *sizes);

/*
 * Launches a run; otherwise as fc_network_run. The first run compiles kernels that the library does not have and copies tables, and so waits; later
 * ones can be captured into a graph. Results are the same bit for bit from run to run on a kind of GPU. The primary context of the GPU becomes
 * current in this thread, as by cudaSetDevice.
 */
int fc_cuda_network_run(const fc_cuda_network *network, const fc_cuda_network_call *call);

/*
 * Launches gradients; otherwise as fc_network_backward, but that kept says which run they are of, so several runs may wait for theirs. The
 * workspace may be that of the run.
 */
int fc_cuda_network_backward(const fc_cuda_network *network, const fc_cuda_network_call *call, const fc_network_gradients *gradients);

/*
 * The fused steerable geometric product: gates, a weighted geometric product, a norm.
 * o = norm(sum over paths p of w[c, p] <<x'>_a <y'>_b>_p), x' = gate(x_0) x, y' alike
 * - input x [blades of left, batch, C]
 * - input y [blades of right, batch, C]
 * - input w [C, paths]
 * - output [reachable blades, batch, C]
 * - setting gate=none|gelu|gelu_tanh|silu|gelu_fast: The gate on both operands: every blade times a
 * function of the scalar component. An operand without scalars is gated by the constant gate(0),
 * 0.5 for all gates but none; default gelu
 * - setting norm=none|rms|invariant: The norm of the result, for each grade and batch element: o_g
 * / sqrt(mean over channels of |o_g|^2 + eps), where the option says what |o_g|^2 is; default
 * invariant
 * - setting eps=NUMBER: Added under the root of the mean; where the quadratic form can be negative,
 * it smooths the magnitude instead; default 1e-6
 * - setting left=GRADES: The grades that x carries. Its tensor holds the blades of these grades
 * only; default all
 * - setting right=GRADES: The grades that y carries. Its tensor holds the blades of these grades
 * only; default all
 */
#define FC_SGP_NORM "sgp_norm"

/*
 * The fused fully connected geometric product: sgp_norm from all channels to all channels.
 * o[m] = norm(sum over n and paths p of w[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)
 * - input x [blades of left, batch, in]
 * - input y [blades of right, batch, in]
 * - input w [paths, in, out]
 * - output [reachable blades, batch, out]
 * - setting gate=none|gelu|gelu_tanh|silu|gelu_fast: The gate on both operands: every blade times a
 * function of the scalar component. An operand without scalars is gated by the constant gate(0),
 * 0.5 for all gates but none; default gelu
 * - setting norm=none|rms|invariant: The norm of the result, for each grade and batch element: o_g
 * / sqrt(mean over channels of |o_g|^2 + eps), where the option says what |o_g|^2 is; default
 * invariant
 * - setting eps=NUMBER: Added under the root of the mean; where the quadratic form can be negative,
 * it smooths the magnitude instead; default 1e-6
 * - setting left=GRADES: The grades that x carries. Its tensor holds the blades of these grades
 * only; default all
 * - setting right=GRADES: The grades that y carries. Its tensor holds the blades of these grades
 * only; default all
 */
#define FC_FCGP_NORM "fcgp_norm"

/*
 * The linear map of channels, with a matrix for each grade.
 * o[m] = sum over n of weight[m, n, grade] x[n] (+ bias[m])
 * - input x [blades of grades, batch, in]
 * - input weight [out, in, grades]
 * - input bias [out], unless bias=none
 * - output [blades of grades, batch, out]
 * - setting per_grade=true|false: A matrix for each grade, or one for all; default true
 * - setting bias=none|scalar|every_blade: The bias; default scalar
 * - setting grades=GRADES: The grades that x carries. Its tensor holds the blades of these grades
 * only; default all
 * - setting weight_layout=out_in_grade|grade_in_out: The order of the axes of the weight of the
 * linear map; default out_in_grade
 */
#define FC_MV_LINEAR "mv_linear"

/*
 * The gated product of x with a linear map of it: flash-clifford's layer.
 * o = sgp_norm(x, y, w), y = mv_linear(x, linear_weight, linear_bias)
 * - input x [blades of grades, batch, C]
 * - input linear_weight [C, C, grades]
 * - input linear_bias [C], unless bias=none
 * - input w [C, paths]
 * - output [reachable blades, batch, C]
 * - setting per_grade=true|false: A matrix for each grade, or one for all; default true
 * - setting bias=none|scalar|every_blade: The bias; default scalar
 * - setting grades=GRADES: The grades that x carries. Its tensor holds the blades of these grades
 * only; default all
 * - setting weight_layout=out_in_grade|grade_in_out: The order of the axes of the weight of the
 * linear map; default out_in_grade
 * - setting gate=none|gelu|gelu_tanh|silu|gelu_fast: The gate on both operands: every blade times a
 * function of the scalar component. An operand without scalars is gated by the constant gate(0),
 * 0.5 for all gates but none; default gelu
 * - setting norm=none|rms|invariant: The norm of the result, for each grade and batch element: o_g
 * / sqrt(mean over channels of |o_g|^2 + eps), where the option says what |o_g|^2 is; default
 * invariant
 * - setting eps=NUMBER: Added under the root of the mean; where the quadratic form can be negative,
 * it smooths the magnitude instead; default 1e-6
 * - setting recompute=true|false: Whether the backward pass computes y again, by one more product
 * of matrices, instead of reading it from what the forward pass saved; default false
 */
#define FC_MV_LINEAR_SGP_NORM "mv_linear_sgp_norm"

/*
 * CGENN's weighted geometric product, as it stands between its linear maps.
 * o = (l + z) / sqrt 2, z = sum over paths p of w[c, p] <<x>_a <r'>_b>_p, r' = grade_norm(r, a)
 * - input x [blades, batch, C]
 * - input r [blades, batch, C]
 * - input w [C, paths]
 * - input a [C, grades], if normalize=true
 * - input l [blades, batch, C], if first_order=true
 * - output [blades, batch, C]
 * - setting first_order=true|false: Whether the first-order term is added: o = (l + z) / sqrt 2;
 * default true
 * - setting normalize=true|false: Whether the right operand is normalised first, by grade_norm with
 * a; default true
 */
#define FC_STEERABLE_PRODUCT "steerable_product"

/*
 * A product of x and y without weights, channel by channel.
 * - input x [blades of left, batch, C]
 * - input y [blades of right, batch, C]
 * - output [reachable blades, batch, C]
 * - setting
 * kind=geometric|exterior|regressive|left_contraction|right_contraction|scalar|commutator: Which
 * product; default geometric
 * - setting left=GRADES: The grades that x carries. Its tensor holds the blades of these grades
 * only; default all
 * - setting right=GRADES: The grades that y carries. Its tensor holds the blades of these grades
 * only; default all
 */
#define FC_PRODUCT "product"

/*
 * The sandwich x y reverse(x): for a unit versor x its action on y, up to a sign.
 * - input x [blades of left, batch, C]
 * - input y [blades of right, batch, C]
 * - output [reachable blades, batch, C]
 * - setting left=GRADES: The grades that x carries. Its tensor holds the blades of these grades
 * only; default all
 * - setting right=GRADES: The grades that y carries. Its tensor holds the blades of these grades
 * only; default all
 */
#define FC_SANDWICH "sandwich"

/*
 * The reverse: grade k times (-1)^(k(k-1)/2).
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 */
#define FC_REVERSE "reverse"

/*
 * The grade involution: grade k times (-1)^k.
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 */
#define FC_GRADE_INVOLUTION "grade_involution"

/*
 * The Clifford conjugate: grade k times (-1)^(k(k+1)/2).
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 */
#define FC_CLIFFORD_CONJUGATE "clifford_conjugate"

/*
 * The dual without a metric, the right complement: e_a ^ dual(e_a) = I.
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 */
#define FC_DUAL "dual"

/*
 * The inverse of dual, the left complement; both commute with the same transformations.
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 */
#define FC_UNDUAL "undual"

/*
 * The norm of sgp_norm, for each grade and batch element, over channels.
 * o_g = x_g / sqrt(mean over channels of |x_g|^2 + eps)
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 * - setting norm=rms|invariant: The form of |x_g|^2; default invariant
 * - setting eps=NUMBER: Added under the root of the mean; where the quadratic form can be negative,
 * it smooths the magnitude instead; default 1e-6
 */
#define FC_GRADE_RMS "grade_rms"

/*
 * The gate of sgp_norm: every blade times a function of the scalar component.
 * o = gate(x_0) x
 * - input x [blades, batch, C]
 * - output [blades, batch, C]
 * - setting gate=none|gelu|gelu_tanh|silu|gelu_fast: The function of the scalar component that
 * multiplies every blade; default gelu
 */
#define FC_GATE "gate"

/*
 * CGENN's learned normalisation of each grade.
 * o_g = x_g / (s (|x_g| - 1) + 1 + 1e-6), s = sigmoid(a_g)
 * - input x [blades, batch, C]
 * - input a [C, grades]
 * - output [blades, batch, C]
 */
#define FC_GRADE_NORM "grade_norm"

/*
 * CGENN's gated nonlinearity.
 * o_g = sigmoid(a_g u_g + b_g) x_g
 * - input x [blades, batch, C]
 * - input a [C, grades]
 * - input b [C, grades]
 * - output [blades, batch, C]
 * - setting invariant=mag2|norm: The invariant of the grades above 0; default mag2
 */
#define FC_MV_SILU "mv_silu"

/*
 * CGENN's layer norm.
 * o = a x / (mean over channels of |x| + 1e-6)
 * - input x [blades, batch, C]
 * - input a [C, 1]
 * - output [blades, batch, C]
 */
#define FC_MV_LAYER_NORM "mv_layer_norm"

/*
 * The smooth norm of a multivector.
 * o = (q(x)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0
 * - input x [blades, batch, C]
 * - output [1, batch, C]
 */
#define FC_NORM "norm"

/*
 * The smooth norm of each grade.
 * o_g = (q(x_g)^2 + 1e-16)^(1/4), q(x) = <reverse(x) x>_0
 * - input x [blades, batch, C]
 * - output [grades, batch, C]
 */
#define FC_GRADE_NORMS "grade_norms"

#ifdef __cplusplus
}
#endif

#endif
