// SPDX-License-Identifier: Apache-2.0
// Sentences in Chinese: every row of the tables is found again from what its format prints, names and
// numbers stay, and what is not ours is left alone.
#include "base/lang.h"
#include "support/test.h"

static const char *said(const char *text) {
    static char out[HN_LANG_BYTES];
    return hn_lang_text(text, out);
}

// What a conversion printed, one sample a kind; the renderer below is a second one on purpose.
static const char *sample_of(char kind) {
    return strchr("diu", kind) ? "7" : strchr("xX", kind) ? "1f" : strchr("feEgGa", kind) ? "2.5" : kind == 'c' ? "q" : "Zq7";
}

static void fill(const char *format, const char *const *samples, char *out, char kinds[16]) {
    int next = 0;
    *out = '\0';
    for (const char *at = format; *at;) {
        bool doubled = *at == '%' && at[1] == '%';
        const char *end = at + 1 + (*at == '%' ? strspn(at + 1, "0123456789$-+#.*hlzjt") : 0);
        if (*at != '%' || doubled || !*end || !strchr("diuxXfeEgGacs", *end)) {
            strncat(out, at, 1);
            at += doubled ? 2 : 1;
            continue;
        }
        const char *dollar = memchr(at, '$', (size_t)(end - at));
        int index = dollar ? atoi(at + 1) - 1 : next++;
        bool dropped = end - at >= 3 && end[-1] == '0' && end[-2] == '.' && *end == 's';
        if (kinds) kinds[index] = *end;
        if (!samples || !dropped) strcat(out, samples ? samples[index] : sample_of(*end));
        at = end + 1;
    }
}

static void every_row_is_found_again(void **state) {
    (void)state;
    size_t count;
    const hn_lang_row *rows = hn_lang_rows(&count);
    assert_true(count > 1000);
    hn_lang_set(HN_LANG_ZH);
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        char english[2048], chinese[2048], kinds[16] = {0};
        const char *samples[16] = {0};
        fill(rows[i].en, NULL, english, kinds);
        for (int k = 0; k < 16; k++)
            samples[k] = kinds[k] ? sample_of(kinds[k]) : "";
        fill(rows[i].zh, samples, chinese, NULL);
        const char *got = said(english);
        if (strcmp(got, chinese) != 0) {
            print_message("row '%s': '%s' is said as '%s'\n", rows[i].en, english, got);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    hn_lang_set(HN_LANG_EN);
}

static void names_and_numbers_stay(void **state) {
    (void)state;
    hn_lang_set(HN_LANG_ZH);
    assert_string_equal(said("unknown option '--fast'"), "未知选项 '--fast'");
    // A file may be called like a word of ours; in quotes it is a name.
    assert_string_equal(said("cannot open 'memory': No such file or directory"), "无法打开 'memory'：没有那个文件或目录");
    assert_string_equal(said("HONE_THREADS: '4.5' is not a whole number from 0 to 1024"),
                        "HONE_THREADS：'4.5' 不是 0 到 1024 之间的整数");
    // The longest row wins, not the first that fits.
    assert_string_equal(said("--seed: 'x' is not a whole number"), "--seed：'x' 不是整数");
    // Order changes, English plurals go.
    assert_string_equal(said("input 3 of conv1 is 'x', which is in no graph"), "conv1 的输入 3 是 'x'，它不在任何图中");
    assert_string_equal(said("there is no cuda:5: the driver shows 2 cards"), "没有 cuda:5：驱动显示 2 张卡");
    assert_string_equal(said("there is no cuda:5: the driver shows 1 card"), "没有 cuda:5：驱动显示 1 张卡");
    // The subject of a node's error is the node, and stays.
    assert_string_equal(said("Conv 'stem': group is 3"), "Conv 'stem'：group 为 3");
    // Sentences in sentences, behind one another, figures in a list.
    assert_string_equal(said("not possible here: this CPU has no bf16 products"), "此处不可行：该 CPU 没有 bf16 乘法");
    assert_string_equal(said("1.500x [1.400, 1.600] faster; 3 of 4 layers in int8, entropy ranges, 7-bit weights"),
                        "快 1.500x [1.400, 1.600]；3 / 4 层用 int8，熵范围，7 位权重");
    assert_string_equal(said("SM active 94 %, L2 hit 30 %"), "SM 活跃 94 %，L2 命中 30 %");
    hn_lang_set(HN_LANG_EN);
}

static void the_rest_is_left_alone(void **state) {
    (void)state;
    static const char *const k_others[] = {"", " ", "conv1", "0.97 [0.96, 0.98]", "ResNet: v1, a; b", "%s", "100 %", "out of time"};
    const char *english = "unknown option '--fast'";
    assert_ptr_equal(said(english), english); // English is not even copied
    hn_lang_set(HN_LANG_ZH);
    for (size_t i = 0; i < HN_COUNT_OF(k_others); i++)
        assert_string_equal(said(k_others[i]), k_others[i]);
    // What would not fit stays whole.
    char longest[HN_LANG_BYTES + 64];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "unknown option '", 16);
    memcpy(longest + sizeof longest - 2, "'", 2);
    assert_ptr_equal(said(longest), longest);
    // Hostile text costs bounded time: many separators, many near-matches.
    char hostile[600];
    for (size_t i = 0; i + 1 < sizeof hostile; i++)
        hostile[i] = ": ; , %'"[i % 8];
    hostile[sizeof hostile - 1] = '\0';
    int64_t start_ns = hn_clock_ns();
    assert_ptr_equal(said(hostile), hostile);
    assert_true(hn_clock_ns() - start_ns < INT64_C(1000000000));
    hn_lang_set(HN_LANG_EN);
}

static void records_are_english_until_shown(void **state) {
    (void)state;
    hone_error err = {0};
    char text[1024];
    hn_lang_set(HN_LANG_ZH);
    HN_SET(&err, HONE_ERR_FORMAT, "the file is empty");
    hn_error_frame(&err, "reading '%s'", "a.onnx");
    hn_error_frame(&err, "strategy '%s'", "graph");
    assert_string_equal(err.text, "the file is empty");
    assert_string_equal(hone_error_format(&err, text, sizeof text), "the file is empty (strategy 'graph': reading 'a.onnx')");
    assert_string_equal(hn_lang_error(&err, text, sizeof text), "文件是空的（策略 'graph'：读取 'a.onnx'）");
    char small[8];
    assert_true(strlen(hn_lang_error(&err, small, sizeof small)) < sizeof small);
    hn_lang_set(HN_LANG_EN);
    assert_string_equal(hn_lang_error(&err, text, sizeof text), "the file is empty (strategy 'graph': reading 'a.onnx')");
}

static void locales(void **state) {
    (void)state;
    static const char *const k_zh[] = {"zh", "zh_CN", "zh_CN.UTF-8", "zh_CN.utf8", "zh_SG.UTF-8@x"};
    static const char *const k_en[] = {"", "C", "C.UTF-8", "en_US.UTF-8", "zha_CN", "zh_CN.GB18030", "zh_CN.GBK", "de_DE"};
    for (size_t i = 0; i < HN_COUNT_OF(k_zh); i++)
        assert_int_equal(hn_lang_of_locale(k_zh[i]), HN_LANG_ZH);
    for (size_t i = 0; i < HN_COUNT_OF(k_en); i++)
        assert_int_equal(hn_lang_of_locale(k_en[i]), HN_LANG_EN);
    hn_lang lang;
    assert_true(hn_lang_named("zh", &lang) && lang == HN_LANG_ZH);
    assert_true(hn_lang_named("en", &lang) && lang == HN_LANG_EN);
    assert_false(hn_lang_named("zh_CN", &lang));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_found_again), cmocka_unit_test(names_and_numbers_stay),
        cmocka_unit_test(the_rest_is_left_alone),   cmocka_unit_test(records_are_english_until_shown),
        cmocka_unit_test(locales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
