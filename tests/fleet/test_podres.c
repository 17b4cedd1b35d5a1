// SPDX-License-Identifier: Apache-2.0
// The kubelet's answers as bytes: frames cut anywhere, padding, pings, refusals; messages that lie; whose a device is.
#include "fleet/grpc.h"
#include "fleet/podres.h"
#include "support/test.h"

typedef struct bytes {
    unsigned char data[4096];
    size_t count;
} bytes;

static void add(bytes *b, const void *data, size_t count) {
    assert_true(b->count + count <= sizeof b->data);
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static void frame(bytes *b, unsigned type, unsigned flags, unsigned stream, const void *payload, size_t count) {
    unsigned char head[9] = {0, (unsigned char)(count >> 8), (unsigned char)count, (unsigned char)type, (unsigned char)flags,
                             0, 0, 0, (unsigned char)stream};
    add(b, head, 9);
    if (count) add(b, payload, count);
}

// As a kubelet answers: settings, their acknowledgement, a ping, headers, data in two frames (one padded), trailers.
static bytes good(void) {
    bytes b = {0};
    frame(&b, 4, 0, 0, "\0\4\0\1\0\0", 6);
    frame(&b, 4, 1, 0, "", 0);
    frame(&b, 8, 0, 0, "\0\1\0\0", 4);
    frame(&b, 1, 4, 1, "\x88\x5f", 2);
    frame(&b, 0, 8, 1, "\2\0\0\0\0\5ab\0\0", 10);
    frame(&b, 6, 0, 0, "12345678", 8);
    frame(&b, 0, 0, 1, "", 0);
    frame(&b, 0, 0, 1, "cde", 3);
    frame(&b, 1, 5, 1, "\x40", 1);
    frame(&b, 7, 0, 0, "\0\0\0\1\0\0\0\0", 8); // after the end: of no interest
    return b;
}

static void an_answer_cut_anywhere(void **state) {
    (void)state;
    bytes b = good();
    for (size_t cut = 0; cut <= b.count; cut++) {
        hn_grpc_answer a = {.max_bytes = 100};
        hone_error err = {0};
        hn_slice message;
        assert_int_equal(hn_grpc_take(&err, &a, b.data, cut), HONE_OK);
        assert_int_equal(hn_grpc_take(&err, &a, b.data + cut, b.count - cut), HONE_OK);
        assert_true(a.ended);
        assert_int_equal(hn_grpc_message(&err, &a, &message), HONE_OK);
        assert_int_equal(message.length, 5);
        assert_memory_equal(message.data, "abcde", 5);
        // What goes back: settings acknowledged once, the ping with its own eight bytes.
        assert_int_equal(a.reply.length, 9 + 9 + 8);
        assert_memory_equal(hn_str_get(&a.reply), "\0\0\0\4\1\0\0\0\0\0\0\x08\6\1\0\0\0\0" "12345678", 26);
        hn_grpc_answer_free(&a);
    }
}

static void refused(const bytes *b, hone_status expected, const char *says) {
    hn_grpc_answer a = {.max_bytes = 100};
    hone_error err = {0};
    hn_slice message;
    hone_status status = hn_grpc_take(&err, &a, b->data, b->count);
    if (status == HONE_OK) status = hn_grpc_message(&err, &a, &message);
    if (status != expected || !strstr(err.text, says)) fail_msg("%d, %s: no '%s'", status, err.text, says);
    hn_grpc_answer_free(&a);
}

static void answers_that_are_none(void **state) {
    (void)state;
    unsigned char big[200] = {0};
    bytes b = {0};
#define REFUSED(status, says) (refused(&b, status, says), b = (bytes){0})
    frame(&b, 1, 5, 1, "\x88", 1); // trailers alone
    REFUSED(HONE_ERR_UNSUPPORTED, "no such service");
    frame(&b, 3, 0, 1, "\0\0\0\7", 4);
    REFUSED(HONE_ERR_UNSUPPORTED, "error 7");
    frame(&b, 7, 0, 0, "\0\0\0\0\0\0\0\2", 8);
    REFUSED(HONE_ERR_UNSUPPORTED, "error 2");
    frame(&b, 7, 0, 0, "", 0);
    REFUSED(HONE_ERR_UNSUPPORTED, "refused");
    add(&b, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    REFUSED(HONE_ERR_FORMAT, "no HTTP/2");
    frame(&b, 0, 0, 3, "x", 1);
    REFUSED(HONE_ERR_FORMAT, "stream 3");
    frame(&b, 5, 0, 1, "x", 1);
    REFUSED(HONE_ERR_FORMAT, "pushes");
    frame(&b, 6, 0, 0, "x", 1);
    REFUSED(HONE_ERR_FORMAT, "ping of 1");
    frame(&b, 0, 8, 1, "\5ab", 3);
    REFUSED(HONE_ERR_FORMAT, "padding");
    frame(&b, 0, 0, 1, big, sizeof big);
    REFUSED(HONE_ERR_LIMIT, "larger than 100");
    frame(&b, 0, 1, 1, "\1\0\0\0\1x", 6); // compressed
    REFUSED(HONE_ERR_FORMAT, "uncompressed");
    frame(&b, 0, 1, 1, "\0\0\0\0\3x", 6);
    REFUSED(HONE_ERR_FORMAT, "no single");
    frame(&b, 0, 1, 1, "\0\0\0", 3);
    REFUSED(HONE_ERR_FORMAT, "no single");
}

static void a_flood_of_pings_ends(void **state) {
    (void)state;
    hn_grpc_answer a = {.max_bytes = 100};
    hone_error err = {0};
    bytes b = {0};
    frame(&b, 6, 0, 0, "12345678", 8);
    hone_status status = HONE_OK;
    int pings = 0;
    for (; status == HONE_OK && pings < 100000; pings++) status = hn_grpc_take(&err, &a, b.data, b.count);
    assert_int_equal(status, HONE_ERR_LIMIT);
    hn_grpc_answer_free(&a);
}

static int parse(const char *message, size_t bytes_count, hn_podres_item *items, int max) {
    int count = -1;
    return hn_podres_parse(NULL, (hn_slice){message, bytes_count}, items, max, &count) == HONE_OK ? count : -1;
}
#define PARSE(message, items, max) parse(message, sizeof(message) - 1, items, max)

static void messages(void **state) {
    (void)state;
    hn_podres_item items[4];
    assert_int_equal(PARSE("", items, 4), 0);
    // Fields in another order than usual: devices before the names that belong to them; unknown fields of each kind.
    static const char k_odd[] = "\x0a\x1b"
                                "\x1a\x10" "\x12\x06\x0a\x01r\x12\x01" "A" "\x12\x03\x12\x01" "B" "\x0a\x01" "c"
                                "\x12\x01n" "\x0a\x01p" "\x20\x96\x01";
    assert_int_equal(PARSE(k_odd, items, 4), 2);
    assert_string_equal(items[1].device, "B");
    assert_string_equal(items[1].container, "c");
    assert_string_equal(items[0].pod, "p");
    assert_string_equal(items[0].namespace_, "n");
    assert_int_equal(PARSE(k_odd, items, 1), 1); // no room for more
    assert_int_equal(PARSE("\x09" "12345678\x15" "1234\x18\x05", items, 4), 0);
    for (size_t cut = 1; cut < sizeof k_odd - 1; cut++) assert_int_equal(parse(k_odd, cut, items, 4), -1);
    assert_int_equal(PARSE("\x0a\x05" "abc", items, 4), -1);                         // longer than what is there
    assert_int_equal(PARSE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", items, 4), -1);
    assert_int_equal(PARSE("\x0b", items, 4), -1);                                   // groups are long gone
    assert_int_equal(PARSE("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", items, 4), -1);
    static char k_long[400] = "\x0a\xf8\x02\x0a\xf5\x02"; // a pod's name of 373 bytes, and then none of its own
    memset(k_long + 6, 'x', 373);
    assert_int_equal(parse(k_long, 6 + 373 - 0, items, 4), 0);
}

static void whose_a_device_is(void **state) {
    (void)state;
    hn_device_info card, mig;
    hn_device_info_init(&card, HN_DEVICE_GPU);
    hn_device_info_init(&mig, HN_DEVICE_MIG);
    snprintf(card.uuid, sizeof card.uuid, "GPU-1111");
    snprintf(mig.uuid, sizeof mig.uuid, "MIG-2222");
    card.minor = 3, mig.gi_id = 7, mig.ci_id = 0;
    static const struct {
        const char *id;
        bool card, mig;
    } k_cases[] = {
        {"GPU-1111", true, false}, {"gpu-1111", true, false},      {"GPU-1111::2", true, false}, {"GPU-11111", false, false},
        {"GPU-111", false, false}, {"MIG-2222", false, true},      {"MIG-2222::0", false, true}, {"MIG-GPU-1111/7/0", false, true},
        {"nvidia3", true, false},  {"nvidia3/vgpu1", true, false}, {"nvidia33", false, false},   {"nvidia3/gi7", false, true},
        {"nvidia3/gi7/vgpu0", false, true}, {"", false, false},    {"::", false, false},         {"nvidia", false, false},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hn_podres_item item = {.pod = "p", .namespace_ = "n", .container = "c"}, out;
        snprintf(item.device, sizeof item.device, "%s", k_cases[i].id);
        if (hn_podres_match(&item, 1, &card, &card, &out) != k_cases[i].card) fail_msg("card %s", k_cases[i].id);
        if (hn_podres_match(&item, 1, &mig, &card, &out) != k_cases[i].mig) fail_msg("instance %s", k_cases[i].id);
    }
    // Unknown facts match nothing.
    hn_device_info bare;
    hn_device_info_init(&bare, HN_DEVICE_GPU);
    hn_podres_item item = {.device = ""}, out;
    assert_false(hn_podres_match(&item, 1, &bare, &bare, &out));
    // Shared: nobody's, unless all shares are one container's.
    hn_podres_item two[2] = {{.device = "GPU-1111::0", .pod = "p", .namespace_ = "n", .container = "a"},
                             {.device = "GPU-1111::1", .pod = "p", .namespace_ = "n", .container = "b"}};
    assert_false(hn_podres_match(two, 2, &card, &card, &out));
    two[1].container[0] = 'a';
    assert_true(hn_podres_match(two, 2, &card, &card, &out));
    assert_string_equal(out.pod, "p");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_cut_anywhere), cmocka_unit_test(answers_that_are_none), cmocka_unit_test(a_flood_of_pings_ends),
        cmocka_unit_test(messages),               cmocka_unit_test(whose_a_device_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
