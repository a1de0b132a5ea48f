/* kernels - pure functions on host memory, one folder per instruction set.
 *
 * A kernel family is a member of pi0_kernels, an instruction set a folder that fills the members it has; dispatch.c starts from ref
 * and lets better folders override, per kernel. A kernel never allocates, threads, logs, or reads the environment; it touches nothing
 * outside the rows and columns that its arguments name. The device splits work by calling a kernel on a range of rows or columns.
 *
 * All matrices are row-major f32 unless a dtype is given; ld is the distance between rows, in elements.
 * Contract: the bits of an output row depend on that row's inputs alone - not on how many rows there are, where they lie, or how the
 * work was split.
 */
#ifndef PI0_KERNELS_H
#define PI0_KERNELS_H

#include "base/base.h"

/* ------------------------------------------------------------------ products */

/* What the two sides of a product are when they meet. */
typedef enum pi0_gemm_form {
    PI0_GEMM_F32,  /* x f32, w as stored, widened; multiplied and summed in f32 */
    PI0_GEMM_BF16, /* x and w rounded to bf16, products exact, sums f32 */
    PI0_GEMM_I8,   /* x by rows and w by columns rounded to whole numbers of at most 8 bits, products and sums exact, then f32 */
    PI0_GEMM_FORMS
} pi0_gemm_form;

extern const char *const pi0_gemm_form_names[PI0_GEMM_FORMS];

/* Columns of a part that are finished together: half a tile holds the first of each pair, the other half the second. */
typedef enum pi0_pairs {
    PI0_PAIRS_NONE,
    PI0_PAIRS_ROPE, /* columns i and i + head/2 of each head, turned by the angle of the row's position */
    PI0_PAIRS_GEGLU /* column i here and in the next part, which has no result of its own: y = gelu(here) * there */
} pi0_pairs;

enum { PI0_GEMM_PARTS = 3 };

/* Matrices that multiply the same x, each with its own result: y[m,n] = x[m,k] * w[n,k]^T (+ bias[n]). Those not used have n = 0. */
typedef struct pi0_gemm_part {
    const void *w; /* row-major as checkpoints store it, f32, bf16 or f16; not read when the product is given packed weights */
    int n;
    pi0_pairs pairs;
    int head;          /* PI0_PAIRS_ROPE */
    const float *bias; /* or NULL */
    float *y;
    size_t ldy;
} pi0_gemm_part;

typedef struct pi0_gemm {
    const float *x;
    size_t ldx;
    pi0_gemm_part part[PI0_GEMM_PARTS];
    pi0_dtype w_dtype;
    size_t ldw;
    const void *packed; /* what pack() made of all parts; or NULL, but not in PI0_GEMM_I8 */
    bool gelu;          /* of every result (tanh form) */
    /* PI0_PAIRS_ROPE: tables [*, head/2], and the row of them for each row of x */
    const float *cos, *sin;
    const int32_t *position;
    int m, k;
} pi0_gemm;

/* A product in one form. Rows of x are cut into tiles of at most tile_rows rows, as equal as can be (pi0_tiles, pi0_tile_at), columns
 * into panels of tile_cols (pi0_panels). prepare() turns tiles of x into what multiply() reads, which may then be called for any tiles and
 * panels, by any threads. A long k is done in spans, in ascending order: k0 and k1 are multiples of k_step, or k1 == k; with pairs there is
 * one span, all of k. */
typedef struct pi0_gemm_kernel {
    const char *title; /* the form's name, of PI0_GEMM_I8 with the bits of weights and of x: "int8 (w8a8)" */
    int tile_rows, tile_cols, k_step;
    size_t (*x_bytes)(int m, int k); /* of prepared x over a span of k */
    void (*prepare)(const pi0_gemm *g, int k0, int k1, int t0, int t1, void *prepared);
    /* tiles [t0,t1) x panels [p0,p1). workspace: workspace_bytes, private to the call. */
    void (*multiply)(const pi0_gemm *g, int k0, int k1, int t0, int t1, int p0, int p1, const void *prepared, void *workspace);
    size_t (*workspace_bytes)(const pi0_gemm *g);
    size_t (*packed_bytes)(const pi0_gemm *g);
    void (*pack)(const pi0_gemm *g, int p0, int p1, void *packed); /* reads the parts; each range of panels writes its own bytes */
    double (*peak)(int rounds); /* its arithmetic on registers alone; returns the operations done (2 a multiply-add) */
} pi0_gemm_kernel;

static inline int pi0_tiles(int m, int tile_rows)
{
    return (m + tile_rows - 1) / tile_rows;
}

/* The first row of tile t. */
static inline int pi0_tile_at(int m, int tiles, int t)
{
    return (int)((int64_t)m * t / tiles);
}

/* Panels of one part: a panel holds columns of one part only, and pairs of one head only. */
static inline int pi0_panels_of_part(const pi0_gemm *g, int part, int tile_cols)
{
    const pi0_gemm_part *p = &g->part[part];
    if (part > 0 && g->part[part - 1].pairs == PI0_PAIRS_GEGLU)
        return 0;
    const int half = tile_cols / 2;
    if (p->pairs == PI0_PAIRS_ROPE)
        return p->n / p->head * ((p->head / 2 + half - 1) / half);
    return p->pairs == PI0_PAIRS_GEGLU ? (p->n + half - 1) / half : (p->n + tile_cols - 1) / tile_cols;
}

static inline int pi0_panels(const pi0_gemm *g, int tile_cols)
{
    int panels = 0;
    for (int part = 0; part < PI0_GEMM_PARTS; part++)
        panels += pi0_panels_of_part(g, part, tile_cols);
    return panels;
}

static inline bool pi0_has_pairs(const pi0_gemm *g)
{
    return g->part[0].pairs != PI0_PAIRS_NONE || g->part[1].pairs != PI0_PAIRS_NONE || g->part[2].pairs != PI0_PAIRS_NONE;
}

/* ------------------------------------------------------------------ attention */

/* One attention problem: rows of queries against a first and an optional second run of keys, one K/V head shared by all query heads
 * when kv_heads is 1 (Gemma), one each when kv_heads == heads (SigLIP).
 * out[r, h*d..] = softmax(scale * q[r,h] . k[j] over allowed j) . v[j]. A row without any allowed key gives zeros. */
typedef struct pi0_attention {
    const float *q;
    size_t ldq; /* [rows, heads*d] */
    const float *k, *v;
    size_t ldkv; /* [keys, kv_heads*d] */
    const float *k2, *v2;
    size_t ldkv2;        /* [keys2, kv_heads*d], or NULL */
    const uint8_t *mask; /* [keys]: 0 = key not attended; NULL = all; the second run is never masked */
    float *out;
    size_t ldo; /* [rows, heads*d] */
    int rows, keys, keys2, heads, kv_heads, d;
    int alone; /* rows 0 .. alone-1 see of the second run only keys 0 .. alone-1 (pi0's state token) */
    /* window > 0: of the second run a row sees keys 0 .. always-1, and those less than `window` away from its own, which for row r is
     * r + diagonal. Blocks of keys that no row of a call sees cost nothing. */
    int window, always, diagonal;
    float scale;
} pi0_attention;

/* ------------------------------------------------------------------ the table */

typedef struct pi0_kernels {
    const char *isa; /* the best folder that contributed */

    pi0_gemm_kernel gemm[PI0_GEMM_FORMS]; /* multiply NULL: this chip has no such form */

    /* The three core pieces of attention, each for one head and rows [r0,r1); scores: [rows, keys+keys2] of that head. */
    void (*attention_scores)(const pi0_attention *a, int head, int r0, int r1, float *scores, size_t lds);
    void (*softmax)(float *scores, size_t lds, int rows, int cols); /* in place; -inf = not attended; a row of only -inf gives zeros */
    void (*attention_mix)(const pi0_attention *a, int head, int r0, int r1, const float *scores, size_t lds);
    /* All of it without a score matrix, for rows [r0,r1) of all heads that share kv_head, in the forms that the chip has; softmax and
     * sums are f32 in each. workspace: attention_workspace bytes. */
    void (*attention[PI0_GEMM_FORMS])(const pi0_attention *a, int kv_head, int r0, int r1, void *workspace);
    size_t attention_workspace;

    /* Row kernels: `rows` rows of `cols`. In place allowed (y == x) unless said. eps as given. */
    void (*layer_norm)(const float *x, size_t ldx, const float *w, const float *b, float eps, float *y, size_t ldy, int rows, int cols);
    void (*rms_norm)(const float *x, size_t ldx, const float *w1 /* 1+w */, float eps, float *y, size_t ldy, int rows, int cols);
    /* y = x/rms * (1 + scale) + shift; mod = [scale | shift | gate], 3*cols */
    void (*ada_norm)(const float *x, size_t ldx, const float *mod, float eps, float *y, size_t ldy, int rows, int cols);
    void (*gated_add)(const float *x, size_t ldx, const float *branch, size_t ldb, const float *gate, float *y, size_t ldy, int rows,
                      int cols);
    void (*add)(const float *a, size_t lda, const float *b, size_t ldb, float *y, size_t ldy, int rows, int cols);
    void (*mul)(const float *a, size_t lda, const float *b, size_t ldb, float *y, size_t ldy, int rows, int cols);
    void (*gelu)(const float *x, size_t ldx, float *y, size_t ldy, int rows, int cols); /* tanh form */
    void (*silu)(const float *x, size_t ldx, float *y, size_t ldy, int rows, int cols);
    /* Rotates heads of width d in halves (x1,x2) -> (x1 cos - x2 sin, x2 cos + x1 sin). sin, cos: [*, d/2] tables, row = position[r]. */
    void (*rope)(const float *x, size_t ldx, const float *cos, const float *sin, const int32_t *position, int heads, int d, float *y,
                 size_t ldy, int rows);
    /* y[r] = table[id[r]] * scale; table f32, bf16 or f16 */
    void (*embed)(const int32_t *ids, const void *table, pi0_dtype dtype, size_t ldt, float scale, float *y, size_t ldy, int rows,
                  int cols);
    /* picture [side,side,3] -> patches [(side/p)^2, 3*p*p], columns ordered channel, row, column as the conv weight is flattened */
    void (*patchify)(const float *picture, int side, int p, float *y, size_t ldy, int row0, int row1);
    void (*euler)(const float *x, size_t ldx, const float *v, size_t ldv, float dt, float *y, size_t ldy, int rows,
                  int cols); /* x + dt*v */
    /* false when any value is NaN or infinite */
    bool (*finite)(const float *x, size_t ldx, int rows, int cols);
} pi0_kernels;

typedef struct pi0_isa_report {
    const char *name; /* "avx2" */
    bool compiled, usable, used;
    const char *reason; /* why not usable, or "" */
} pi0_isa_report;

/* The table for this machine, no better than `cap` (NULL = best). Unknown cap, or one this machine lacks: PI0_ERR_ARGUMENT. */
pi0_status pi0_kernels_select(const char *cap, pi0_kernels *out, pi0_error *err);
size_t pi0_kernels_report(pi0_isa_report *out, size_t cap); /* number of instruction sets known */

#endif
