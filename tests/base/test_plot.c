// SPDX-License-Identifier: Apache-2.0
// Pages and plots: hostile text stays text, unknown figures are gaps, axes are round, the page is well formed.
#include <math.h>
#include "base/html.h"
#include "base/plot.h"
#include "support/test.h"
#include <expat.h>

// The page is also XML but for its doctype and void <meta> elements: expat judges the nesting.
static void check_nesting(const hn_str *page) {
    hn_str xml = {0};
    const char *at = strstr(hn_str_get(page), "<html");
    assert_non_null(at);
    while (*at) {
        const char *meta = strstr(at, "<meta");
        size_t length = meta ? (size_t)(meta - at) : strlen(at);
        hn_str_append_n(&xml, at, length);
        at += length;
        if (meta) at = strchr(at, '>') + 1;
    }
    XML_Parser parser = XML_ParserCreate("UTF-8");
    enum XML_Status status = XML_Parse(parser, xml.data, (int)xml.length, 1);
    if (status != XML_STATUS_OK)
        print_error("line %lu: %s\n", XML_GetCurrentLineNumber(parser), XML_ErrorString(XML_GetErrorCode(parser)));
    assert_int_equal(status, XML_STATUS_OK);
    XML_ParserFree(parser);
    hn_str_free(&xml);
}

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

static void test_escape(void **state) {
    (void)state;
    static const struct { const char *in, *out; } k_cases[] = {
        {"<script>alert('x')&\"", "&lt;script&gt;alert(&#39;x&#39;)&amp;&quot;"},
        {"a\x01\x7f\nb", "a   b"},
        {"\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80", "\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"},
        {"\xff\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // a lone surrogate
        {"cut\xe4\xb8", "cut\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hn_str out = {0};
        hn_html_escape(&out, k_cases[i].in);
        assert_string_equal(hn_str_get(&out), k_cases[i].out);
        hn_str_free(&out);
    }
}

static void test_numbers(void **state) {
    (void)state;
    static const struct { double value; const char *text; } k_cases[] = {
        {0, "0"}, {NAN, "-"}, {INFINITY, "-"}, {700, "700"}, {0.25, "0.25"}, {1e-5, "1e-05"}, {1234.4, "1234"},
        {12345, "12.3k"}, {2.5e9, "2.5G"}, {-3.5, "-3.5"}, {99.96, "100"}, {12.25, "12.2"}, {1e16, "10000T"}};
    char text[HN_PLOT_TEXT_BYTES];
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++)
        assert_string_equal(hn_plot_text(k_cases[i].value, text), k_cases[i].text);
    assert_true(fabs(hn_plot_step(700, 4) - 200) < 1e-9 && fabs(hn_plot_step(1, 4) - 0.25) < 1e-12);
    assert_true(hn_plot_step(0, 4) == 1 && hn_plot_step(NAN, 4) == 1 && hn_plot_step(INFINITY, 4) == 1);
    assert_true(fabs(hn_plot_step(0.03, 3) - 0.01) < 1e-12);
}

static void test_plot(void **state) {
    (void)state;
    hn_str page = {0};
    hn_plot_point points[] = {{0, 100, NAN, NAN}, {1, 300, NAN, NAN}, {2, NAN, NAN, NAN}, {3, 650, NAN, NAN}, {4, 640, NAN, NAN},
                              {9, 5, NAN, NAN}};
    hn_plot_point banded[] = {{0, 50, 40, 60}, {1, 55, 30, 90}};
    hn_plot_series series[] = {{"power <1>", points, 6, 0, false}, {"band", banded, 2, 1, false}};
    hn_plot_stretch stretches[] = {{0, 5, "train & \"co\"", 0}, {5, 9, "idle", 1}, {9, 9, "empty", 2}};
    hn_plot_rule rules[] = {{700, "limit"}, {1e9, "far beyond"}};
    hn_plot plot = {"Power", "W", HN_PLOT_TIME, NAN, NAN, NAN, NAN, 2, series, 2, stretches, 3, rules, 1};
    hn_html_begin(&page, "a <b> & c");
    hn_html_section(&page, "Section", "note");
    hn_html_tiles_begin(&page);
    hn_html_tile(&page, "energy", "12 J", NULL);
    hn_html_tiles_end(&page);
    hn_html_note(&page, "warn", "title", "text", NULL);
    const char *names[] = {"what", ">figure"}, *cells[] = {"<x>", "1"};
    hn_html_table_begin(&page, names, 2);
    hn_html_row(&page, names, cells, 2);
    hn_html_table_end(&page);
    hn_plot_grid_begin(&page);
    hn_plot_html(&page, &plot);
    series[0].count = series[1].count = 0;
    hn_plot_html(&page, &plot); // nothing measured
    hn_bar bars[] = {{"one", 2, 1.5, 2.5, NULL, 0}, {"none", NAN, NAN, NAN, "unknown", 1}};
    hn_bars speedups = {"Speed", "x", NAN, 1, bars, 2};
    hn_bars_html(&page, &speedups);
    hn_plot_grid_end(&page);
    hn_html_end(&page);
    assert_false(page.failed);
    check_nesting(&page);
    const char *text = hn_str_get(&page);
    // A gap at the unknown figure and one at the long pause: three runs, and the band's one.
    assert_int_equal(count_of(text, "class=\"ln\""), 4);
    assert_int_equal(count_of(text, "class=\"band\""), 1);
    assert_int_equal(count_of(text, "not measured"), 1);
    assert_int_equal(count_of(text, "class=\"goal\""), 1);
    assert_int_equal(count_of(text, "<rect"), 2); // the empty stretch is not drawn
    assert_non_null(strstr(text, ">800</span>"));  // y up to a round number above the limit
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "<b> &"));
    assert_null(strstr(text, "http"));
    assert_null(strstr(text, "<script"));
    hn_str_free(&page);
}

// One constant point, points out of a fixed frame: drawn inside it.
static void test_edges(void **state) {
    (void)state;
    hn_str out = {0};
    hn_plot_point one[] = {{5, 0, NAN, NAN}}, wild[] = {{-1, -50, NAN, NAN}, {20, 500, NAN, NAN}};
    hn_plot_series series[] = {{"", one, 1, 9, true}};
    hn_plot plot = {.title = "t", .x_min = NAN, .x_max = NAN, .y_min = NAN, .y_max = NAN, .series = series, .series_count = 1};
    hn_plot_html(&out, &plot);
    series[0] = (hn_plot_series){"w", wild, 2, 0, false};
    plot.x_min = 0, plot.x_max = 10, plot.y_min = 0, plot.y_max = 100;
    hn_plot_html(&out, &plot);
    assert_non_null(strstr(hn_str_get(&out), "d=\"M0.0 100.00L1000.0 0.00\""));
    assert_null(strstr(hn_str_get(&out), "nan"));
    hn_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_escape), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_plot), cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
