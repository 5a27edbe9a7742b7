/* What flashcliff.h takes of the standard header, for `cargo xtask bindings`. */
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT32_TYPE__ uint32_t;
