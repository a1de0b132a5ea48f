/* Compiled with -mavx2 -mfma -mf16c and PI0_HAVE_AVX2 where the target is x86-64, and empty elsewhere. */
typedef int pi0_avx2_not_empty;

#ifdef PI0_HAVE_AVX2

#include "kernels/avx2/simd.h"

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
#include "kernels/rows_tpl.h"
#include "kernels/table_tpl.h"

static const pi0_kernels table = KERNELS_FROM_TEMPLATES("avx2");

const pi0_kernels_isa pi0_isa_avx2 = {.name = "avx2", .table = &table};

#endif
