#include "base/base.h"

size_t pi0_dtype_size(pi0_dtype dtype)
{
    switch (dtype) {
    case PI0_U8:
    case PI0_I8:
    case PI0_BOOL:
    case PI0_TEXT:
        return 1;
    case PI0_F16:
    case PI0_BF16:
    case PI0_I16:
    case PI0_U16:
        return 2;
    case PI0_F32:
    case PI0_I32:
    case PI0_U32:
        return 4;
    case PI0_F64:
    case PI0_I64:
    case PI0_U64:
        return 8;
    }
    return 0;
}

const char *pi0_dtype_name(pi0_dtype dtype)
{
    static const char *const names[] = {
        [PI0_F32] = "f32", [PI0_F64] = "f64", [PI0_F16] = "f16",   [PI0_BF16] = "bf16", [PI0_U8] = "u8",
        [PI0_I8] = "i8",   [PI0_I16] = "i16", [PI0_U16] = "u16",   [PI0_I32] = "i32",   [PI0_U32] = "u32",
        [PI0_I64] = "i64", [PI0_U64] = "u64", [PI0_BOOL] = "bool", [PI0_TEXT] = "text",
    };
    unsigned i = (unsigned)dtype;
    return i >= PI0_F32 && i <= PI0_TEXT ? names[i] : "unknown";
}
