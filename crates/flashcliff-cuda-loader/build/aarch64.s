// A function that jumps to where its record says: at first to the search, then to the library.
// A record is a struct Record of src/record.rs.
.macro flashcliff_cuda_function symbol, name, library
    .pushsection .text.flashcliff_cuda.\symbol, "ax", %progbits
    .p2align 2
    .globl \symbol
    .hidden \symbol
    .type \symbol, %function
\symbol:
    adrp x16, .Lflashcliff_cuda_record_\symbol
    ldr x17, [x16, :lo12:.Lflashcliff_cuda_record_\symbol]
    br x17
.Lflashcliff_cuda_search_\symbol:
    adrp x16, .Lflashcliff_cuda_record_\symbol
    add x16, x16, :lo12:.Lflashcliff_cuda_record_\symbol
    b flashcliff_cuda_first_call
    .size \symbol, . - \symbol
    .popsection
    .pushsection .data.rel.flashcliff_cuda.\symbol, "aw", %progbits
    .p2align 3
.Lflashcliff_cuda_record_\symbol:
    .xword .Lflashcliff_cuda_search_\symbol
    .xword .Lflashcliff_cuda_name_\symbol
    .xword \library
    .popsection
    .pushsection .rodata.flashcliff_cuda.\symbol, "a", %progbits
.Lflashcliff_cuda_name_\symbol:
    .asciz "\name"
    .popsection
.endm

// Keeps the arguments, asks for the address of the function whose record is in x16, and goes there.
    .pushsection .text.flashcliff_cuda_first_call, "ax", %progbits
    .p2align 2
    .globl flashcliff_cuda_first_call
    .hidden flashcliff_cuda_first_call
    .type flashcliff_cuda_first_call, %function
flashcliff_cuda_first_call:
    stp x29, x30, [sp, #-224]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov x0, x16
    bl flashcliff_cuda_address
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    br x16
    .size flashcliff_cuda_first_call, . - flashcliff_cuda_first_call
    .popsection

