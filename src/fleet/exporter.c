// SPDX-License-Identifier: Apache-2.0
// The exporter's server: see exporter.h.
#include "fleet/exporter.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "libs/mhd.h"

#define CONNECTIONS_MAX  64u
#define CONNECTION_BYTES 16384u
#define TIMEOUT_S        10u

struct hn_exporter {
    const hn_mhd *api;
    hn_page *page; // the server thread's
    struct MHD_Daemon *daemon; // owned
    int socket;                // owned until the daemon has it
    hn_str text;               // owned: answers are made here
    char address[80];
    bool local;
};

static const char k_index[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><title>hone exporter</title></head><body><h1>hone exporter</h1>\n"
    "<p><a href=\"/metrics\">/metrics</a> for Prometheus, <a href=\"/health\">/health</a></p></body></html>\n";

// ---- answers ----------------------------------------------------------------------------------
static enum MHD_Result answer(hn_exporter *e, struct MHD_Connection *connection, unsigned status, const char *type,
                              const char *text, size_t bytes) {
    struct MHD_Response *response =
        e->api->MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    e->api->MHD_add_response_header(response, "Content-Type", type);
    if (status == 405) e->api->MHD_add_response_header(response, "Allow", "GET, HEAD");
    enum MHD_Result result = e->api->MHD_queue_response(connection, status, response);
    e->api->MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(hn_exporter *e, struct MHD_Connection *connection, unsigned status,
                                   const char *text) {
    return answer(e, connection, status, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result answer_metrics(hn_exporter *e, struct MHD_Connection *connection) {
    const char *accept = e->api->MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    hn_page_format format = hn_page_negotiate(accept);
    hone_error err = {0};
    e->text.length = 0;
    if (hn_page_render(&err, e->page, format, &e->text) != HONE_OK) {
        hn_str_free(&e->text);
        e->text = (hn_str){0};
        return answer_text(e, connection, 500, "out of memory\n");
    }
    return answer(e, connection, 200, format == HN_PAGE_OPENMETRICS ? HN_PAGE_OPENMETRICS_TYPE : HN_PAGE_TEXT_TYPE,
                  hn_str_get(&e->text), e->text.length);
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_bytes, void **state) {
    hn_exporter *e = user;
    (void)version, (void)upload;
    static int seen;
    if (!*state) { // headers only: the answer comes with a later call, a refusal at once
        *state = &seen;
        if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) return MHD_YES;
        return answer_text(e, connection, 405, "only GET and HEAD\n");
    }
    if (*upload_bytes) { // a body is of no interest
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(url, "/metrics") == 0) return answer_metrics(e, connection);
    if (strcmp(url, "/health") == 0 || strcmp(url, "/healthz") == 0) {
        e->text.length = 0;
        bool well = hn_page_health(e->page, &e->text);
        if (well) hn_str_append(&e->text, "ok\n");
        return answer_text(e, connection, well ? 200 : 503, hn_str_get(&e->text));
    }
    if (strcmp(url, "/") == 0)
        return answer(e, connection, 200, "text/html; charset=utf-8", k_index, sizeof k_index - 1);
    return answer_text(e, connection, 404, "there are /metrics and /health\n");
}

// ---- listening --------------------------------------------------------------------------------
static hone_status resolve(hone_error *err, const char *listen_at, struct sockaddr_storage *out, socklen_t *out_bytes) {
    char host[64] = "";
    const char *colon = strrchr(listen_at, ':');
    size_t length = colon ? (size_t)(colon - listen_at) : 0;
    int64_t port;
    bool bracket = length >= 2 && listen_at[0] == '[' && colon[-1] == ']';
    if (!colon || length >= sizeof host || !hn_parse_i64((hn_slice){colon + 1, strlen(colon + 1)}, &port) || port < 0 ||
        port > 65535)
        HN_FAIL(err, HONE_ERR_USAGE, "--listen: '%s' is not ADDRESS:PORT", listen_at);
    snprintf(host, sizeof host, "%.*s", (int)(bracket ? length - 2 : length), listen_at + bracket);
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    *out = (struct sockaddr_storage){0};
    if (strcmp(host, "localhost") == 0) snprintf(host, sizeof host, "127.0.0.1");
    if (!bracket && (!host[0] || inet_pton(AF_INET, host, &four->sin_addr) == 1)) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        *out_bytes = sizeof *four;
    } else if (bracket && inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        *out_bytes = sizeof *six;
    } else {
        HN_FAIL(err, HONE_ERR_USAGE, "--listen: '%s' is no numeric address (127.0.0.1:9400, [::1]:9400, :9400)", host);
    }
    return HONE_OK;
}

static void name_address(hn_exporter *e, const struct sockaddr_storage *at) {
    char host[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_in *four = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)at;
    if (at->ss_family == AF_INET) {
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(e->address, sizeof e->address, "%s:%u", host, ntohs(four->sin_port));
        e->local = ntohl(four->sin_addr.s_addr) >> 24 == 127;
    } else {
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(e->address, sizeof e->address, "[%s]:%u", host, ntohs(six->sin6_port));
        e->local = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    }
}

static hone_status open_socket(hone_error *err, hn_exporter *e, const char *listen_at) {
    struct sockaddr_storage at;
    socklen_t bytes;
    int on = 1;
    HN_TRY(resolve(err, listen_at, &at, &bytes));
    e->socket = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (e->socket < 0) HN_FAIL(err, HONE_ERR_IO, "no socket for '%s': %s", listen_at, strerror(errno));
    setsockopt(e->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(e->socket, (struct sockaddr *)&at, bytes) != 0 || listen(e->socket, 128) != 0 ||
        getsockname(e->socket, (struct sockaddr *)&at, &bytes) != 0)
        HN_FAIL_VENDOR(err, HONE_ERR_IO, errno, "cannot listen on '%s': %s", listen_at, strerror(errno));
    name_address(e, &at);
    return HONE_OK;
}

hn_status hn_exporter_start(hone_error *err, hn_page *page, const char *listen_at, hn_exporter **out_exporter) {
    hn_exporter *e = hn_calloc(1, sizeof *e);
    if (!e) HN_NOMEM(err, "exporter");
    e->page = page;
    e->socket = -1;
    hone_status status = hn_mhd_get(err, &e->api);
    if (status == HONE_OK) status = open_socket(err, e, listen_at);
    if (status == HONE_OK) {
        sigset_t every, before;
        sigfillset(&every); // signals are the main thread's
        pthread_sigmask(SIG_SETMASK, &every, &before);
        e->daemon = e->api->MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, handle, e,
                                             MHD_OPTION_LISTEN_SOCKET, e->socket, MHD_OPTION_CONNECTION_LIMIT,
                                             CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S,
                                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
                                             MHD_OPTION_END);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!e->daemon) status = HN_SET(err, HONE_ERR_IO, "libmicrohttpd does not start on '%s'", listen_at);
    }
    if (status != HONE_OK) {
        hn_exporter_stop(e);
        return status;
    }
    *out_exporter = e;
    return HONE_OK;
}

void hn_exporter_stop(hn_exporter *exporter) {
    if (!exporter) return;
    if (exporter->daemon) exporter->api->MHD_stop_daemon(exporter->daemon); // closes the socket
    else if (exporter->socket >= 0) close(exporter->socket);
    hn_str_free(&exporter->text);
    hn_free(exporter);
}

const char *hn_exporter_address(const hn_exporter *exporter) { return exporter->address; }
bool hn_exporter_is_local(const hn_exporter *exporter) { return exporter->local; }
