# A function that jumps to where its record says: at first to the search, then to the library.
# A record is a struct Record of src/record.rs.
.macro flashcliff_cuda_function symbol, name, library
    .pushsection .text.flashcliff_cuda.\symbol, "ax", @progbits
    .globl \symbol
    .hidden \symbol
    .type \symbol, @function
\symbol:
    jmp *.Lflashcliff_cuda_record_\symbol(%rip)
.Lflashcliff_cuda_search_\symbol:
    leaq .Lflashcliff_cuda_record_\symbol(%rip), %r11
    jmp flashcliff_cuda_first_call
    .size \symbol, . - \symbol
    .popsection
    .pushsection .data.rel.flashcliff_cuda.\symbol, "aw", @progbits
    .p2align 3
.Lflashcliff_cuda_record_\symbol:
    .quad .Lflashcliff_cuda_search_\symbol
    .quad .Lflashcliff_cuda_name_\symbol
    .quad \library
    .popsection
    .pushsection .rodata.flashcliff_cuda.\symbol, "a", @progbits
.Lflashcliff_cuda_name_\symbol:
    .asciz "\name"
    .popsection
.endm

# Keeps the arguments, asks for the address of the function whose record is in r11, and goes there.
    .pushsection .text.flashcliff_cuda_first_call, "ax", @progbits
    .globl flashcliff_cuda_first_call
    .hidden flashcliff_cuda_first_call
    .type flashcliff_cuda_first_call, @function
flashcliff_cuda_first_call:
    pushq %rbp
    movq %rsp, %rbp
    andq $-16, %rsp
    subq $192, %rsp
    movq %rdi, 0(%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rax, 48(%rsp)
    movups %xmm0, 64(%rsp)
    movups %xmm1, 80(%rsp)
    movups %xmm2, 96(%rsp)
    movups %xmm3, 112(%rsp)
    movups %xmm4, 128(%rsp)
    movups %xmm5, 144(%rsp)
    movups %xmm6, 160(%rsp)
    movups %xmm7, 176(%rsp)
    movq %r11, %rdi
    call flashcliff_cuda_address
    movq %rax, %r11
    movq 0(%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    movq 48(%rsp), %rax
    movups 64(%rsp), %xmm0
    movups 80(%rsp), %xmm1
    movups 96(%rsp), %xmm2
    movups 112(%rsp), %xmm3
    movups 128(%rsp), %xmm4
    movups 144(%rsp), %xmm5
    movups 160(%rsp), %xmm6
    movups 176(%rsp), %xmm7
    movq %rbp, %rsp
    popq %rbp
    jmp *%r11
    .size flashcliff_cuda_first_call, . - flashcliff_cuda_first_call
    .popsection

