#include "kernels/ref/simd.h"

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#include "kernels/vector_tpl.h"

#include "kernels/tile_tpl.h"

#include "kernels/tile_f32_tpl.h"

#include "kernels/attention_keys_tpl.h"

#include "kernels/attention_core_tpl.h"
#include "kernels/attention_f32_tpl.h"
#include "kernels/gemm_tpl.h"

#include "kernels/gemm_f32_tpl.h"

#define I8_TITLE "int8 (w8a8)"
enum { I8_W_MOST = 127, I8_X_MOST = 127, I8_X_EXCESS = 0, GEMM_I8_STEP = 1024 };

/* Two products of 8 bits and their sum fit in 16. */
V_INLINE vi v_dot_i8(vf x, vf w, vi sum)
{
    typedef int16_t vs __attribute__((vector_size(sizeof(vf))));
    const vs a = (vs)x, b = (vs)w;
    const vi pairs = (vi)((a << 8 >> 8) * (b << 8 >> 8) + (a >> 8) * (b >> 8));
    return sum + (pairs << 16 >> 16) + (pairs >> 16);
}

#include "kernels/gemm_i8_tpl.h"

#include "kernels/rows_tpl.h"
#include "kernels/table_tpl.h"

static const pi0_kernels table = KERNELS_FROM_TEMPLATES("ref");

const pi0_kernels_isa pi0_isa_ref = {.name = "ref", .table = &table};
