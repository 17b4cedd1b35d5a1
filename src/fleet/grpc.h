// SPDX-License-Identifier: Apache-2.0
// One gRPC call with an empty request over a Unix socket: as much of HTTP/2 as a client needs for that.
//
// Header blocks of the answer are skipped, not decoded (nothing is ever looked up in them): a whole message is an answer, none is a
// refusal. Whatever the other side sends, the call ends within its time and holds at most max_bytes.
#ifndef HN_FLEET_GRPC_H
#define HN_FLEET_GRPC_H
#include "base/base.h"

// method: "/package.Service/Method". The message replaces what is in `out`, which keeps its memory between calls.
hn_status hn_grpc_call(hone_error *err, const char *socket_path, const char *method, int timeout_ms, size_t max_bytes, hn_str *out);

// What has come of an answer: apart, so that it can be tested without a socket.
typedef struct hn_grpc_answer {
    hn_str body;            // the message with its prefix, so far; owned
    hn_str reply;           // frames to be sent back; owned
    size_t max_bytes;       // of body
    bool ended;             // all has come
    bool in_frame;          // else `have` bytes of the next frame's header are there
    unsigned char frame[9]; // that header
    size_t have, length, at, pad; // of the payload: its length, what has been read, padding at its end
    unsigned char word[8];  // its first bytes
} hn_grpc_answer;
hn_status hn_grpc_take(hone_error *err, hn_grpc_answer *answer, const unsigned char *data, size_t bytes);
// The message of an answer that has ended, within its body.
hn_status hn_grpc_message(hone_error *err, const hn_grpc_answer *answer, hn_slice *out_message);
void hn_grpc_answer_free(hn_grpc_answer *answer);
#endif
