/* product_tpl - the innermost loop, once for each pair of formats that can meet in it. Included with
 *   PRODUCT(name)            the names of what it defines
 *   PRODUCT_SUM              vector of sums: V_LANES of them
 *   PRODUCT_X(p)             one word of x in every lane
 *   PRODUCT_W_WORDS          words of w a step
 *   PRODUCT_VECTORS          vectors of a row of the tile: V_TILE, when it is left out
 *   PRODUCT_LOAD(w, b)       one step of w into as many vectors b
 *   PRODUCT_STEP(x, b, sum)  sum + x * b
 * and defines PRODUCT(table)[rows], one function for each number of rows, so that each keeps all its sums in registers, and PRODUCT(peak).
 */

#ifndef PRODUCT_VECTORS
#define PRODUCT_VECTORS V_TILE
#endif

V_INLINE void PRODUCT(rows)(const int rows, int words, const float *x, const float *w, float *out, size_t ldo)
{
    enum { CHAINS = PRODUCT_VECTORS == 1 ? 2 : 1 }; /* one vector a row is too few sums that do not wait for each other */
    PRODUCT_SUM sum[TILE_ROWS][CHAINS][PRODUCT_VECTORS];
    V_UNROLL
    for (int i = 0; i < rows; i++) {
        V_UNROLL
        for (int v = 0; v < CHAINS * PRODUCT_VECTORS; v++)
            sum[i][v / PRODUCT_VECTORS][v % PRODUCT_VECTORS] = (PRODUCT_SUM){0};
    }
    for (; words > 0; words -= TILE_LINE, x += rows * TILE_LINE) {
        const float *line = x, *end = x + pi0_min_int(words, TILE_LINE);
        for (; line < end; line += TILE_STEP) {
            V_UNROLL
            for (int step = 0; step < TILE_STEP; step++) {
                vf b[PRODUCT_VECTORS];
                V_UNROLL
                PRODUCT_LOAD(w, b)
                V_UNROLL
                for (int i = 0; i < rows; i++) {
                    vf one = PRODUCT_X(line + i * TILE_LINE + step);
                    V_UNROLL
                    for (int v = 0; v < PRODUCT_VECTORS; v++)
                        sum[i][step % CHAINS][v] = PRODUCT_STEP(one, b[v], sum[i][step % CHAINS][v]);
                }
                w += PRODUCT_W_WORDS;
            }
        }
    }
    V_UNROLL
    for (int i = 0; i < rows; i++) {
        V_UNROLL
        for (int v = 0; v < PRODUCT_VECTORS; v++)
            v_store(out + (size_t)i * ldo + v * V_LANES, (vf)(CHAINS == 1 ? sum[i][0][v] : sum[i][0][v] + sum[i][CHAINS - 1][v]));
    }
}

#define PRODUCT_ROWS(n)                                                                                              \
    static __attribute__((noinline)) void PRODUCT(n)(int words, const void *x, const void *w, void *out, size_t ldo) \
    {                                                                                                                \
        PRODUCT(rows)(n, words, x, w, out, ldo);                                                                     \
    }
PRODUCT_ROWS(1)
PRODUCT_ROWS(2)
PRODUCT_ROWS(3)
PRODUCT_ROWS(4)
PRODUCT_ROWS(5)
PRODUCT_ROWS(6)

static const tile_product PRODUCT(table)[TILE_ROWS + 1] = {NULL, PRODUCT(1), PRODUCT(2), PRODUCT(3), PRODUCT(4), PRODUCT(5), PRODUCT(6)};

/* The same arithmetic on registers alone: what the loop above is measured against. Returns how many multiplications of words it did. */
static inline double PRODUCT(peak)(int rounds)
{
    PRODUCT_SUM sum[TILE_ROWS][V_TILE]; /* as many as a tile has: sums that do not wait for each other */
    vf x = {0};
    V_UNROLL
    for (int i = 0; i < TILE_ROWS; i++) {
        V_UNROLL
        for (int v = 0; v < V_TILE; v++)
            sum[i][v] = (PRODUCT_SUM){0};
    }
    for (int round = 0; round < rounds; round++) {
        V_UNROLL
        for (int i = 0; i < TILE_ROWS; i++) {
            V_UNROLL
            for (int v = 0; v < V_TILE; v++) {
                V_KEEP(x); /* or the product would be computed once for all */
                sum[i][v] = PRODUCT_STEP(x, x, sum[i][v]);
                V_KEEP(sum[i][v]);
            }
        }
    }
    return (double)rounds * TILE_ROWS * V_TILE * V_LANES;
}

#undef PRODUCT_ROWS
#undef PRODUCT
#undef PRODUCT_SUM
#undef PRODUCT_X
#undef PRODUCT_VECTORS
#undef PRODUCT_W_WORDS
#undef PRODUCT_LOAD
#undef PRODUCT_STEP
