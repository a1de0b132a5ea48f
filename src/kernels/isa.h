/* isa - what an instruction-set folder exports to dispatch.c. Members that a folder leaves NULL come from the folders below it. */
#ifndef PI0_KERNELS_ISA_H
#define PI0_KERNELS_ISA_H

#include "kernels/kernels.h"

typedef struct pi0_kernels_isa {
    const char *name;
    const pi0_kernels *table;
} pi0_kernels_isa;

extern const pi0_kernels_isa pi0_isa_ref;
extern const pi0_kernels_isa pi0_isa_avx2;
extern const pi0_kernels_isa pi0_isa_avx2_vnni;
extern const pi0_kernels_isa pi0_isa_avx512;
extern const pi0_kernels_isa pi0_isa_avx512_vnni;
extern const pi0_kernels_isa pi0_isa_avx512_bf16;
extern const pi0_kernels_isa pi0_isa_neon;
extern const pi0_kernels_isa pi0_isa_neon_dotprod;
extern const pi0_kernels_isa pi0_isa_neon_bf16;

#endif
