/* table_tpl - the table of a folder that takes every kernel from the templates. */

#define KERNELS_FROM_TEMPLATES(isa_name)                                                                                                 \
    {                                                                                                                                    \
        .isa = (isa_name), .gemm = {[PI0_GEMM_F32] = GEMM_F32_KERNEL, [PI0_GEMM_I8] = GEMM_I8_KERNEL},                                   \
        .attention_scores = attention_scores, .softmax = softmax, .attention_mix = attention_mix,                                        \
        .attention = {[PI0_GEMM_F32] = attention}, .attention_workspace = ATT_WORKSPACE, .layer_norm = layer_norm, .rms_norm = rms_norm, \
        .ada_norm = ada_norm, .gated_add = gated_add, .add = add, .mul = mul, .gelu = gelu, .silu = silu, .rope = rope, .embed = embed,  \
        .patchify = patchify, .euler = euler, .finite = finite_rows                                                                      \
    }
