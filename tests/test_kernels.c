/* Table lookups and the choice of kernels, on every instruction set that this machine can run. */
#include "kernels_fixture.h"

static void B18_every_f16_code_is_read_the_same(void **state)
{
    (void)state;
    enum { CODES = 65536 };
    uint16_t *table = malloc(CODES * sizeof *table);
    float *y = malloc(CODES * sizeof *y);
    assert_non_null(table);
    assert_non_null(y);
    for (int i = 0; i < CODES; i++)
        table[i] = (uint16_t)i;
    int32_t id = 0;
    EACH_ISA(k)
    {
        k->embed(&id, table, PI0_F16, CODES, 1.0f, y, CODES, 1, CODES);
        for (int i = 0; i < CODES; i++) {
            float expected = pi0_f32_from_f16((uint16_t)i);
            if (isnan(expected))
                assert_true(isnan(y[i]));
            else
                assert_memory_equal(y + i, &expected, sizeof expected);
        }
        assert_true(y[0x3c00] == 1.0f && y[0x0001] == 0x1p-24f && y[0x7bff] == 65504.0f && isinf(y[0x7c00]));
    }
    free(table);
    free(y);
}

/* ------------------------------------------------------------------ dispatch */

static void select_knows_its_ladder(void **state)
{
    (void)state;
    pi0_kernels k;
    pi0_error err = {0};
    pi0_isa_report report[MAX_ISAS];
    size_t n = pi0_kernels_report(report, MAX_ISAS);
    assert_int_equal(pi0_kernels_report(NULL, 0), n);
    assert_string_equal(report[0].name, "ref");
    assert_true(report[0].compiled && report[0].usable);
    int used = 0;
    assert_int_equal(pi0_kernels_select(NULL, &k, &err), PI0_OK);
    for (size_t i = 0; i < n; i++) {
        used += report[i].used;
        if (report[i].used)
            assert_string_equal(report[i].name, k.isa);
        assert_true(report[i].usable == (report[i].reason[0] == '\0'));
        if (!report[i].usable)
            assert_int_equal(pi0_kernels_select(report[i].name, &k, &err), PI0_ERR_ARGUMENT);
    }
    assert_int_equal(used, 1);
    assert_int_equal(pi0_kernels_select("ref", &k, &err), PI0_OK);
    assert_string_equal(k.isa, "ref");
    assert_int_equal(pi0_kernels_select("AVX3", &k, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(pi0_kernels_select("", &k, NULL), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    EACH_ISA(table)
    {
        assert_true(table->gemm[PI0_GEMM_F32].multiply && table->attention_scores && table->softmax && table->attention_mix &&
                    table->attention[PI0_GEMM_F32]);
        assert_true(table->layer_norm && table->rms_norm && table->ada_norm && table->gated_add && table->add && table->mul);
        assert_true(table->gelu && table->silu && table->rope && table->embed && table->patchify && table->euler && table->finite);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B18_every_f16_code_is_read_the_same),
        cmocka_unit_test(select_knows_its_ladder),
    };
    return cmocka_run_group_tests_name("kernels", tests, load_isas, NULL);
}
