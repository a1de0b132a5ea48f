#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "kernels/isa.h"

const char *const pi0_gemm_form_names[PI0_GEMM_FORMS] = {"f32", "bf16", "int8"};

/* The ladder, worst first. A rung stands on all rungs below it. */
typedef struct rung {
    const char *name;
    const pi0_kernels_isa *isa;   /* NULL: not compiled */
    const char *(*missing)(void); /* what this machine lacks, or NULL */
} rung;

static const char *nothing_missing(void)
{
    return NULL;
}

#if defined(__x86_64__)

enum { CPUID_SAVE_STATE = 1 << 27, XCR0_SSE_AVX = 0x06, XCR0_AVX512 = 0xe6 };

/* Whether the operating system saves the registers named by `mask` when it switches threads. */
static bool os_saves(unsigned mask)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & CPUID_SAVE_STATE))
        return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & mask) == mask;
}

static const char *avx2_missing(void)
{
    unsigned a, b, c, d, a7, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7))
        return "the CPU has no AVX2";
    if (!(b7 & bit_AVX2))
        return "the CPU has no AVX2";
    if (!(c & bit_FMA))
        return "the CPU has no FMA";
    if (!(c & bit_F16C))
        return "the CPU has no F16C";
    if (!os_saves(XCR0_SSE_AVX))
        return "the operating system does not save AVX registers";
    return NULL;
}

/* Bits of leaf 7, subleaf 1, register a: not every compiler's cpuid.h names them. */
enum { CPUID_AVX_VNNI = 1 << 4, CPUID_AVX512_BF16 = 1 << 5 };

static bool has_in_leaf_7_1(unsigned bit)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit);
}

static const char *avx2_vnni_missing(void)
{
    if (avx2_missing() != NULL)
        return avx2_missing();
    return has_in_leaf_7_1(CPUID_AVX_VNNI) ? NULL : "the CPU has no AVX-VNNI";
}

#ifdef PI0_EMULATE_AVX512 /* those folders are compiled into AVX2: cmake/isa.cmake */

#define avx512_missing avx2_missing
#define avx512_vnni_missing avx2_missing
#define avx512_bf16_missing avx2_missing

#else

static const char *avx512_missing(void)
{
    unsigned a, b, c, d;
    const unsigned needed = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if (avx2_missing() != NULL)
        return avx2_missing();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & needed) != needed)
        return "the CPU has not all of AVX-512 F, BW, VL and DQ";
    if (!os_saves(XCR0_AVX512))
        return "the operating system does not save AVX-512 registers";
    return NULL;
}

static const char *avx512_vnni_missing(void)
{
    unsigned a, b, c, d;
    if (avx512_missing() != NULL)
        return avx512_missing();
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & bit_AVX512VNNI) ? NULL : "the CPU has no AVX512-VNNI";
}

static const char *avx512_bf16_missing(void)
{
    if (avx512_missing() != NULL)
        return avx512_missing();
    return has_in_leaf_7_1(CPUID_AVX512_BF16) ? NULL : "the CPU has no AVX512-BF16";
}

#endif

#else

static const char *x86_only(void)
{
    return "the CPU is not x86-64";
}
#define avx2_missing x86_only
#define avx2_vnni_missing x86_only
#define avx512_missing x86_only
#define avx512_vnni_missing x86_only
#define avx512_bf16_missing x86_only

#endif

#if defined(__aarch64__)

#define neon_missing nothing_missing /* every aarch64 has it */

static const char *neon_dotprod_missing(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? NULL : "the CPU has no dot product extension";
}

static const char *neon_bf16_missing(void)
{
    return getauxval(AT_HWCAP2) & HWCAP2_BF16 ? NULL : "the CPU has no BF16 extension";
}

#else

static const char *aarch64_only(void)
{
    return "the CPU is not aarch64";
}
#define neon_missing aarch64_only
#define neon_dotprod_missing aarch64_only
#define neon_bf16_missing aarch64_only

#endif

#ifdef PI0_HAVE_AVX2
#define IF_AVX2(table) (table)
#else
#define IF_AVX2(table) NULL
#endif
#ifdef PI0_HAVE_AVX2_VNNI
#define IF_AVX2_VNNI(table) (table)
#else
#define IF_AVX2_VNNI(table) NULL
#endif
#ifdef PI0_HAVE_AVX512
#define IF_AVX512(table) (table)
#else
#define IF_AVX512(table) NULL
#endif
#ifdef PI0_HAVE_AVX512_VNNI
#define IF_AVX512_VNNI(table) (table)
#else
#define IF_AVX512_VNNI(table) NULL
#endif
#ifdef PI0_HAVE_AVX512_BF16
#define IF_AVX512_BF16(table) (table)
#else
#define IF_AVX512_BF16(table) NULL
#endif

#ifdef PI0_HAVE_NEON
#define IF_NEON(table) (table)
#else
#define IF_NEON(table) NULL
#endif
#ifdef PI0_HAVE_NEON_DOTPROD
#define IF_NEON_DOTPROD(table) (table)
#else
#define IF_NEON_DOTPROD(table) NULL
#endif
#ifdef PI0_HAVE_NEON_BF16
#define IF_NEON_BF16(table) (table)
#else
#define IF_NEON_BF16(table) NULL
#endif

static const rung ladder[] = {
    {"ref", &pi0_isa_ref, nothing_missing},
    {"avx2", IF_AVX2(&pi0_isa_avx2), avx2_missing},
    {"avx2-vnni", IF_AVX2_VNNI(&pi0_isa_avx2_vnni), avx2_vnni_missing},
    {"avx512", IF_AVX512(&pi0_isa_avx512), avx512_missing},
    {"avx512-vnni", IF_AVX512_VNNI(&pi0_isa_avx512_vnni), avx512_vnni_missing},
    {"avx512-bf16", IF_AVX512_BF16(&pi0_isa_avx512_bf16), avx512_bf16_missing},
    {"neon", IF_NEON(&pi0_isa_neon), neon_missing},
    {"neon-dotprod", IF_NEON_DOTPROD(&pi0_isa_neon_dotprod), neon_dotprod_missing},
    {"neon-bf16", IF_NEON_BF16(&pi0_isa_neon_bf16), neon_bf16_missing},
};

enum { RUNGS = sizeof ladder / sizeof ladder[0] };

static const char *unusable_because(const rung *r)
{
    const char *missing = r->missing();
    if (missing != NULL)
        return missing;
    return r->isa == NULL ? "this build does not contain it" : NULL;
}

static void take(pi0_kernels *out, const pi0_kernels *from)
{
#define TAKE(member)          \
    if (from->member != NULL) \
        out->member = from->member;
    out->isa = from->isa;
    for (int form = 0; form < PI0_GEMM_FORMS; form++)
        if (from->gemm[form].multiply != NULL)
            out->gemm[form] = from->gemm[form];
    for (int form = 0; form < PI0_GEMM_FORMS; form++)
        if (from->attention[form] != NULL) {
            out->attention[form] = from->attention[form];
            out->attention_workspace = pi0_max_size(out->attention_workspace, from->attention_workspace);
        }
    TAKE(attention_scores)
    TAKE(softmax)
    TAKE(attention_mix)
    TAKE(layer_norm)
    TAKE(rms_norm)
    TAKE(ada_norm)
    TAKE(gated_add)
    TAKE(add)
    TAKE(mul)
    TAKE(gelu)
    TAKE(silu)
    TAKE(rope)
    TAKE(embed)
    TAKE(patchify)
    TAKE(euler)
    TAKE(finite)
#undef TAKE
}

static pi0_status fail_cap(const char *cap, const char *reason, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_ARGUMENT, "instruction set '%s' cannot be used: %s", cap, reason);
    char usable[128] = "";
    for (int i = 0; i < RUNGS; i++)
        if (unusable_because(&ladder[i]) == NULL) {
            size_t n = strlen(usable);
            snprintf(usable + n, sizeof usable - n, "%s%s", n > 0 ? ", " : "", ladder[i].name);
        }
    pi0_err_where(err, "isa");
    pi0_err_expected(err, "one of: %s", usable);
    pi0_err_got(err, "%s", cap);
    pi0_err_hint(err, "leave it out to use the best one of this machine");
    return PI0_ERR_ARGUMENT;
}

pi0_status pi0_kernels_select(const char *cap, pi0_kernels *out, pi0_error *err)
{
    int top = RUNGS - 1;
    if (cap != NULL) {
        for (top = 0; top < RUNGS && strcmp(ladder[top].name, cap) != 0;)
            top++;
        if (top == RUNGS)
            return fail_cap(cap, "no such instruction set is known", err);
        const char *reason = unusable_because(&ladder[top]);
        if (reason != NULL)
            return fail_cap(cap, reason, err);
    }
    memset(out, 0, sizeof *out);
    for (int i = 0; i <= top; i++)
        if (unusable_because(&ladder[i]) == NULL)
            take(out, ladder[i].isa->table);
    return PI0_OK;
}

size_t pi0_kernels_report(pi0_isa_report *out, size_t cap)
{
    int best = 0;
    for (int i = 0; i < RUNGS; i++)
        if (unusable_because(&ladder[i]) == NULL)
            best = i;
    for (size_t i = 0; i < RUNGS && i < cap; i++) {
        const char *reason = unusable_because(&ladder[i]);
        out[i] = (pi0_isa_report){
            .name = ladder[i].name,
            .compiled = ladder[i].isa != NULL,
            .usable = reason == NULL,
            .used = (int)i == best,
            .reason = reason != NULL ? reason : "",
        };
    }
    return RUNGS;
}
