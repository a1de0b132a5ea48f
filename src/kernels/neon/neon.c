/* Compiled with PI0_HAVE_NEON where the target is aarch64, and empty elsewhere. */
typedef int pi0_neon_not_empty;

#ifdef PI0_HAVE_NEON

#include "kernels/neon/simd.h"

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

static const pi0_kernels table = KERNELS_FROM_TEMPLATES("neon");

const pi0_kernels_isa pi0_isa_neon = {.name = "neon", .table = &table};

#endif
