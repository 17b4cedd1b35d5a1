// SPDX-License-Identifier: Apache-2.0
// One gRPC call: see grpc.h. Frames and numbers are those of RFC 9113, header fields those of RFC 7541.
#include "fleet/grpc.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FRAME_MAX 16384u // we never allow more
#define WINDOW    0x01000000u
#define REPLY_MAX (1u << 16)

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PUSH_PROMISE = 5, PING = 6, GOAWAY = 7 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

static uint32_t number(const unsigned char *at, int bytes) {
    uint32_t value = 0;
    while (bytes-- > 0) value = value << 8 | *at++;
    return value;
}

static void put(hn_str *out, uint32_t value, int bytes) {
    while (bytes-- > 0) {
        char c = (char)(value >> (8 * bytes));
        hn_str_append_n(out, &c, 1);
    }
}

static void put_frame(hn_str *out, size_t length, unsigned type, unsigned flags, uint32_t stream) {
    put(out, (uint32_t)length, 3);
    put(out, type, 1);
    put(out, flags, 1);
    put(out, stream, 4);
}

// A header field that no table keeps. name NULL: the static table's number `index`.
static void put_field(hn_str *out, unsigned index, const char *name, const char *value) {
    put(out, index, 1);
    if (name) {
        put(out, (uint32_t)strlen(name), 1);
        hn_str_append(out, name);
    }
    put(out, (uint32_t)strlen(value), 1); // below 127, and so one byte without Huffman's bit
    hn_str_append(out, value);
}

static void put_request(hn_str *out, const char *method) {
    hn_str fields = {0};
    hn_str_append(out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    put_frame(out, 12, SETTINGS, 0, 0);
    put(out, 2, 2), put(out, 0, 4);      // no pushes
    put(out, 4, 2), put(out, WINDOW, 4); // of a stream
    put_frame(out, 4, 8, 0, 0);          // and of the connection
    put(out, WINDOW, 4);
    put(&fields, 0x83, 1); // :method POST
    put(&fields, 0x86, 1); // :scheme http
    put_field(&fields, 4, NULL, method);
    put_field(&fields, 1, NULL, "localhost"); // :authority
    put_field(&fields, 0, "content-type", "application/grpc");
    put_field(&fields, 0, "te", "trailers");
    put_frame(out, fields.length, HEADERS, END_HEADERS, 1);
    hn_str_append_n(out, hn_str_get(&fields), fields.length);
    put_frame(out, 5, DATA, END_STREAM, 1);
    put(out, 0, 1), put(out, 0, 4); // a message of no bytes
    if (fields.failed) out->failed = true;
    hn_str_free(&fields);
}

// ---- the answer -------------------------------------------------------------------------------
static hn_status begin_frame(hone_error *err, hn_grpc_answer *a) {
    uint32_t stream = number(a->frame + 5, 4) & 0x7fffffff;
    unsigned type = a->frame[3];
    a->length = number(a->frame, 3);
    a->at = a->pad = 0;
    if (a->length > FRAME_MAX) HN_FAIL(err, HONE_ERR_FORMAT, "the answer is no HTTP/2: a frame of %zu bytes", a->length);
    if (type == PUSH_PROMISE) HN_FAIL(err, HONE_ERR_FORMAT, "the answer pushes what nobody asked for");
    if ((type == DATA || type == HEADERS || type == RST_STREAM) && stream != 1)
        HN_FAIL(err, HONE_ERR_FORMAT, "the answer has a stream %u that nobody began", stream);
    if (type == PING && a->length != 8) HN_FAIL(err, HONE_ERR_FORMAT, "the answer is no HTTP/2: a ping of %zu bytes", a->length);
    return HONE_OK;
}

static hn_status end_frame(hone_error *err, hn_grpc_answer *a) {
    unsigned type = a->frame[3], flags = a->frame[4];
    uint32_t last = a->length >= 8 ? number(a->word, 4) & 0x7fffffff : 0;
    uint32_t code = type == RST_STREAM && a->length >= 4 ? number(a->word, 4) : a->length >= 8 ? number(a->word + 4, 4) : 0;
    a->in_frame = false;
    a->have = 0;
    if (type == SETTINGS && !(flags & ACK)) put_frame(&a->reply, 0, SETTINGS, ACK, 0);
    if (type == PING && !(flags & ACK)) {
        put_frame(&a->reply, 8, PING, ACK, 0);
        hn_str_append_n(&a->reply, (const char *)a->word, 8);
    }
    // Without an error and beyond our stream it only says that no further calls are taken.
    if (type == RST_STREAM || (type == GOAWAY && (code != 0 || last == 0)))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the call was refused (HTTP/2 error %u)", code);
    if ((type == DATA || type == HEADERS) && (flags & END_STREAM)) a->ended = true;
    return HONE_OK;
}

// `bytes` > 0 of the frame's payload from position a->at on.
static hn_status take_payload(hone_error *err, hn_grpc_answer *a, const unsigned char *data, size_t bytes) {
    size_t from = a->at, to = a->at + bytes;
    for (size_t i = from; i < to && i < sizeof a->word; i++) a->word[i] = data[i - from];
    a->at = to;
    if (a->frame[3] != DATA) return HONE_OK;
    size_t begin = a->frame[4] & PADDED ? 1 : 0;
    if (begin && from == 0) a->pad = data[0];
    if (a->pad + begin > a->length) HN_FAIL(err, HONE_ERR_FORMAT, "the answer is no HTTP/2: more padding than frame");
    size_t end = hn_min_i64((int64_t)to, (int64_t)(a->length - a->pad));
    if (begin < from) begin = from;
    if (begin >= end) return HONE_OK;
    if (a->body.length + (end - begin) > a->max_bytes) HN_FAIL(err, HONE_ERR_LIMIT, "the answer is larger than %zu bytes", a->max_bytes);
    hn_str_append_n(&a->body, (const char *)data + (begin - from), end - begin);
    return HONE_OK;
}

hn_status hn_grpc_take(hone_error *err, hn_grpc_answer *a, const unsigned char *data, size_t bytes) {
    while (bytes > 0 && !a->ended) {
        size_t n;
        if (!a->in_frame) {
            n = hn_min_i64((int64_t)bytes, (int64_t)(sizeof a->frame - a->have));
            memcpy(a->frame + a->have, data, n);
            a->have += n;
            if (a->have == sizeof a->frame) {
                HN_TRY(begin_frame(err, a));
                a->in_frame = true;
            }
        } else {
            n = hn_min_i64((int64_t)bytes, (int64_t)(a->length - a->at));
            HN_TRY(take_payload(err, a, data, n));
        }
        data += n;
        bytes -= n;
        if (a->in_frame && a->at == a->length) HN_TRY(end_frame(err, a));
        if (a->reply.length > REPLY_MAX) HN_FAIL(err, HONE_ERR_LIMIT, "the answer asks for too many answers");
        if (a->body.failed || a->reply.failed) HN_NOMEM(err, "answer");
    }
    return HONE_OK;
}

hn_status hn_grpc_message(hone_error *err, const hn_grpc_answer *a, hn_slice *out_message) {
    const unsigned char *body = (const unsigned char *)hn_str_get(&a->body);
    if (a->body.length == 0) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the call was refused: there is no such service, or it failed");
    if (a->body.length < 5 || number(body + 1, 4) != a->body.length - 5 || body[0] != 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "the answer is no single uncompressed message");
    *out_message = (hn_slice){(const char *)body + 5, a->body.length - 5};
    return HONE_OK;
}

void hn_grpc_answer_free(hn_grpc_answer *a) {
    hn_str_free(&a->body);
    hn_str_free(&a->reply);
    *a = (hn_grpc_answer){0};
}

// ---- the socket -------------------------------------------------------------------------------
static hn_status wait_for(hone_error *err, int fd, short events, int64_t until_ns) {
    for (;;) {
        int64_t left_ns = until_ns - hn_clock_ns();
        struct pollfd at = {.fd = fd, .events = events};
        int ready = left_ns > 0 ? poll(&at, 1, (int)(left_ns / 1000000) + 1) : 0;
        if (ready > 0) return HONE_OK;
        if (ready == 0) HN_FAIL(err, HONE_ERR_TIMEOUT, "no answer in time");
        if (errno != EINTR) HN_FAIL(err, HONE_ERR_IO, "the socket fails: %s", strerror(errno));
    }
}

static hn_status send_all(hone_error *err, int fd, const hn_str *text, int64_t until_ns) {
    for (size_t at = 0; at < text->length;) {
        ssize_t put_bytes = send(fd, hn_str_get(text) + at, text->length - at, MSG_NOSIGNAL);
        if (put_bytes > 0) at += (size_t)put_bytes;
        else if (put_bytes < 0 && errno == EAGAIN) HN_TRY(wait_for(err, fd, POLLOUT, until_ns));
        else if (put_bytes < 0 && errno != EINTR) HN_FAIL(err, HONE_ERR_IO, "the socket fails: %s", strerror(errno));
    }
    return HONE_OK;
}

static hn_status converse(hone_error *err, int fd, const char *method, int64_t until_ns, hn_grpc_answer *answer) {
    unsigned char data[FRAME_MAX];
    put_request(&answer->reply, method);
    if (answer->reply.failed) HN_NOMEM(err, "request");
    while (!answer->ended) {
        HN_TRY(send_all(err, fd, &answer->reply, until_ns));
        answer->reply.length = 0;
        HN_TRY(wait_for(err, fd, POLLIN, until_ns));
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got == 0) HN_FAIL(err, HONE_ERR_IO, "the connection was closed before an answer");
        if (got < 0 && errno != EAGAIN && errno != EINTR) HN_FAIL(err, HONE_ERR_IO, "the socket fails: %s", strerror(errno));
        if (got > 0) HN_TRY(hn_grpc_take(err, answer, data, (size_t)got));
    }
    return HONE_OK;
}

hn_status hn_grpc_call(hone_error *err, const char *socket_path, const char *method, int timeout_ms, size_t max_bytes, hn_str *out) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int64_t until_ns = hn_clock_ns() + (int64_t)timeout_ms * 1000000;
    if (strlen(socket_path) >= sizeof at.sun_path) HN_FAIL(err, HONE_ERR_USAGE, "'%s' is too long for a socket", socket_path);
    memcpy(at.sun_path, socket_path, strlen(socket_path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) HN_FAIL(err, HONE_ERR_IO, "no socket: %s", strerror(errno));
    hn_grpc_answer answer = {.max_bytes = max_bytes};
    hn_slice message;
    // A local socket connects at once or, where its queue is full, not now.
    hone_status status = connect(fd, (struct sockaddr *)&at, sizeof at) == 0
                             ? converse(err, fd, method, until_ns, &answer)
                             : HN_SET(err, HONE_ERR_IO, "cannot connect to '%s': %s", socket_path, strerror(errno));
    if (status == HONE_OK) status = hn_grpc_message(err, &answer, &message);
    if (status == HONE_OK) {
        out->length = 0;
        hn_str_append_n(out, message.data, message.length);
        if (out->failed) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (answer)");
    }
    close(fd);
    hn_grpc_answer_free(&answer);
    return status;
}
