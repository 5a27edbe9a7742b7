/* What flashcliff.h takes of the standard header, for `cargo xtask bindings`. */
typedef __SIZE_TYPE__ size_t;
