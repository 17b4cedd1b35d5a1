// SPDX-License-Identifier: Apache-2.0
// Symbolic dims: canonical forms, ranges, exact division, text; and a random test that every
// operation agrees with plain integers under random bindings.
#include "support/test.h"
#include "ir/dim.h"

static const char *text_of(const hn_dims *dims, hn_dim dim) {
    static char buf[4][512];
    static int next;
    hn_str out = {0};
    hn_dim_print(&out, dims, dim);
    char *to = buf[next++ % 4];
    snprintf(to, sizeof buf[0], "%s", hn_str_get(&out));
    hn_str_free(&out);
    return to;
}

static hn_dim parse(hn_dims *dims, const char *text) {
    hone_error err = {0};
    hn_dim dim = 0;
    hone_status status = hn_dim_parse(&err, dims, (hn_slice){text, strlen(text)}, &dim);
    if (status != HONE_OK) fail_msg("%s: %s", text, err.text);
    return dim;
}

static void test_equal_handles(void **state) {
    (void)state;
    hn_dims *d = hn_dims_new();
    static const char *const pairs[][2] = {
        {"N+M", "M+N"},
        {"N*M*4", "4*M*N"},
        {"(N+1)*(M+2)", "N*M+2*N+M+2"},
        {"((N+1)//2+1)//2", "(N+3)//4"},
        {"(2*N+1)//2", "N"},
        {"(4*N+6)//2", "2*N+3"},
        {"(6*N)%3", "0"},
        {"(6*N+4)%3", "1"},
        {"N-N", "0"},
        {"(N*M+M)//M", "N+1"},
        {"min(N,N+2)", "N"},
        {"max(N+1,N)", "N+1"},
        {"(N-(-3))//1", "N+3"},
        {"min(M,N)", "min(N,M)"},
        {"7//(-2)", "-4"},
        {"7%(-2)", "-1"},
        {"(-7)%2", "1"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(pairs); i++) {
        hn_dim a = parse(d, pairs[i][0]), b = parse(d, pairs[i][1]);
        if (a != b) fail_msg("%s is %s, not %s", pairs[i][0], text_of(d, a), text_of(d, b));
    }
    assert_true(parse(d, "N") != parse(d, "M"));
    assert_true(parse(d, "N//2") != parse(d, "(N+1)//2"));
    assert_true(hn_dim_is_symbol(d, parse(d, "N")));
    assert_false(hn_dim_is_symbol(d, parse(d, "N+1")));
    assert_true(hn_dim_floordiv(d, 5, 0) != hn_dim_floordiv(d, 5, 0));
    hn_dims_free(d);
}

static void test_ranges_and_divisors(void **state) {
    (void)state;
    hn_dims *d = hn_dims_new();
    int64_t lo, hi;
    hn_dim n = hn_dim_symbol(d, "N"), half = parse(d, "(N+1)//2"), rest = parse(d, "N%32");
    hn_dim_range(d, n, &lo, &hi);
    assert_int_equal(lo, 0);
    assert_int_equal(hi, INT64_MAX);
    hn_dim_range(d, parse(d, "N-5"), &lo, &hi);
    assert_int_equal(lo, -5);
    assert_int_equal(hi, INT64_MAX);
    hn_dim_range(d, rest, &lo, &hi);
    assert_int_equal(lo, 0);
    assert_int_equal(hi, 31);
    hn_dim_narrow(d, n, 1, 100, 8); // reaches what was built before
    hn_dim_range(d, half, &lo, &hi);
    assert_int_equal(lo, 1);
    assert_int_equal(hi, 50);
    assert_int_equal(hn_dim_divisor(d, n), 8);
    assert_int_equal(hn_dim_divisor(d, parse(d, "3*N+12")), 12);
    assert_int_equal(hn_dim_divisor(d, parse(d, "N*M")), 8);
    assert_int_equal(hn_dim_divisor(d, 0), 0);
    assert_int_equal(parse(d, "N%4"), 0);
    assert_int_equal(parse(d, "N//128"), 0);
    assert_true(parse(d, "min(N,128)") == n);
    hn_dim_range(d, hn_dim_mul(d, parse(d, "N-200"), parse(d, "N-200")), &lo, &hi);
    assert_true(hi >= 199 * 199);
    hn_dims_free(d);
}

static void test_divide_exact(void **state) {
    (void)state;
    hn_dims *d = hn_dims_new();
    hn_dim q;
    assert_true(hn_dim_divide_exact(d, parse(d, "2*N*4"), parse(d, "N"), &q));
    assert_int_equal(q, 8);
    assert_true(hn_dim_divide_exact(d, parse(d, "N*H*W*3"), parse(d, "3*W"), &q));
    assert_true(q == parse(d, "N*H"));
    assert_true(hn_dim_divide_exact(d, parse(d, "N*N+2*N+1"), parse(d, "N+1"), &q));
    assert_true(q == parse(d, "N+1"));
    assert_false(hn_dim_divide_exact(d, parse(d, "N+1"), parse(d, "N"), &q));
    assert_false(hn_dim_divide_exact(d, parse(d, "3*N"), 2, &q));
    assert_false(hn_dim_divide_exact(d, 12, 0, &q));
    assert_false(hn_dim_divide_exact(d, 12, parse(d, "N"), &q));
    hn_dims_free(d);
}

static void test_bounds(void **state) {
    (void)state;
    hn_dims *d = hn_dims_new();
    hn_dim n = hn_dim_symbol(d, "N"), x = n;
    for (int i = 0; i < 20000; i++) // neither recursion nor cost may grow without limit
        x = hn_dim_max(d, hn_dim_floordiv(d, hn_dim_add(d, x, 3), hn_dim_symbol(d, "K")), 7);
    assert_true(x != HN_DIM_FAILED);
    int64_t lo, hi;
    hn_dim_range(d, x, &lo, &hi);
    assert_true(lo >= 0 || hn_dim_is_symbol(d, x) || lo == INT64_MIN);
    x = n;
    for (int i = 0; i < 100; i++)
        x = hn_dim_mul(d, x, hn_dim_add(d, n, 1 + (i & 3)));
    assert_true(x != HN_DIM_FAILED);
    hn_dim big = hn_dim_mul(d, hn_dim_mul(d, n, INT64_MAX), 4); // overflows: unknown
    assert_true(hn_dim_is_symbol(d, big));
    assert_true(hn_dim_is_symbol(d, hn_dim_add(d, INT64_MAX, 1)) ||
                hn_dim_is_const(hn_dim_add(d, INT64_MAX, 1)) == false);
    assert_true(hn_dim_add(d, HN_DIM_FAILED, 1) == HN_DIM_FAILED);
    hn_dims_free(d);
}

static void test_text(void **state) {
    (void)state;
    hn_dims *d = hn_dims_new();
    static const char *const same[] = {"N",          "2*N+1",       "(N+1)//2", "-N+4",
                                       "M*N",        "?7",          "min(M,N)", "\"batch size\"",
                                       "2*((N)//3)", "-((N)//3)+1", "(N)%(M)",  "\"a\\22b\"",
                                       "-3*N-2",     "-12"};
    for (size_t i = 0; i < HN_COUNT_OF(same); i++)
        assert_string_equal(text_of(d, parse(d, same[i])), same[i]);
    hone_error err = {0};
    static const char *const bad[] = {
        "",   "N+",  "(N", "N)", "min(N)", "\"x", "N N", "?99999999999", "99999999999999999999",
        "//", "\"\""};
    for (size_t i = 0; i < HN_COUNT_OF(bad); i++) {
        hn_dim dim = 42;
        assert_int_not_equal(hn_dim_parse(&err, d, (hn_slice){bad[i], strlen(bad[i])}, &dim),
                             HONE_OK);
        assert_int_equal(dim, 42);
        assert_true(err.text[0]);
    }
    char deep[2001];
    memset(deep, '(', 2000);
    deep[2000] = 0;
    hn_dim dim;
    assert_int_equal(hn_dim_parse(&err, d, (hn_slice){deep, 2000}, &dim), HONE_ERR_LIMIT);
    hn_dims_free(d);
}

// ---- random -------------------------------------------------------------------------------------

static uint64_t seed = 88172645463325252ull;
static uint64_t rnd(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

typedef struct binding {
    hn_dim symbol[3];
    int64_t value[3];
} binding;

static bool lookup(void *user, hn_dim symbol, int64_t *out) {
    binding *b = user;
    for (int i = 0; i < 3; i++)
        if (b->symbol[i] == symbol) {
            *out = b->value[i];
            return true;
        }
    return false;
}

static void test_random_agrees_with_integers(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        hn_dims *d = hn_dims_new();
        binding b = {{hn_dim_symbol(d, "A"), hn_dim_symbol(d, "B"), hn_dim_symbol(d, NULL)}, {0}};
        hn_dim_narrow(d, b.symbol[1], 0, 1000, 4);
        for (int i = 0; i < 3; i++)
            b.value[i] = (int64_t)(rnd() % 20) * (i == 1 ? 4 : 1);
        hn_dim dims[24];
        int64_t values[24];
        int count = 0;
        for (; count < 3; count++)
            dims[count] = b.symbol[count], values[count] = b.value[count];
        dims[count] = values[count] = 3, count++;
        while (count < 24) {
            int i = (int)(rnd() % (unsigned)count), j = (int)(rnd() % (unsigned)count);
            int64_t x = values[i], y = values[j], k = 1 + (int64_t)(rnd() % 5), r;
            hn_dim result;
            switch (rnd() % 8) {
            case 0:
                result = hn_dim_add(d, dims[i], dims[j]), r = x + y;
                break;
            case 1:
                result = hn_dim_sub(d, dims[i], dims[j]), r = x - y;
                break;
            case 2:
                result = hn_dim_mul(d, dims[i], k), r = x * k;
                break;
            case 3:
                if (x > 100000 || y > 100000 || x < -100000 || y < -100000) continue;
                result = hn_dim_mul(d, dims[i], dims[j]), r = x * y;
                break;
            case 4:
                result = hn_dim_floordiv(d, dims[i], k);
                r = x / k - (x % k != 0 && x < 0);
                break;
            case 5:
                result = hn_dim_mod(d, dims[i], k);
                r = (x % k + k) % k;
                break;
            case 6:
                result = hn_dim_min(d, dims[i], dims[j]), r = x < y ? x : y;
                break;
            default:
                result = hn_dim_ceildiv(d, dims[i], k), r = x / k + (x % k != 0 && x > 0);
            }
            int64_t got, lo, hi;
            bool known = hn_dim_eval(d, result, lookup, &b, &got);
            if (!known) continue; // became a fresh unknown: allowed
            if (got != r)
                fail_msg("%s gives %lld, not %lld", text_of(d, result), (long long)got,
                         (long long)r);
            hn_dim_range(d, result, &lo, &hi);
            assert_true(lo <= r && r <= hi);
            int64_t divisor = hn_dim_divisor(d, result);
            assert_true(divisor == 0 ? r == 0 : r % divisor == 0);
            hn_dim q;
            if (y && hn_dim_divide_exact(d, result, dims[j], &q) &&
                hn_dim_eval(d, q, lookup, &b, &got))
                assert_int_equal(got * y, r);
            // Text round trip gives the same handle in the same table.
            assert_true(parse(d, text_of(d, result)) == result);
            dims[count] = result, values[count++] = r;
        }
        hn_dims *copy = hn_dims_clone(d);
        assert_non_null(copy);
        for (int i = 0; i < count; i++)
            assert_string_equal(text_of(d, dims[i]), text_of(copy, dims[i]));
        hn_dims_free(copy);
        hn_dims_free(d);
    }
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth < 40; nth++) {
        hn_alloc_fail_nth(nth);
        hn_dims *d = hn_dims_new();
        if (d) {
            hn_dim x = hn_dim_symbol(d, "N");
            for (int i = 0; i < 100; i++)
                x = hn_dim_add(d, hn_dim_max(d, x, hn_dim_symbol(d, "M")),
                               hn_dim_floordiv(d, x, 3 + i));
            hn_dims_free(hn_dims_clone(d));
            hn_dims_free(d);
        }
        hn_alloc_fail_nth(0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_handles), cmocka_unit_test(test_ranges_and_divisors),
        cmocka_unit_test(test_divide_exact),  cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_random_agrees_with_integers),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
