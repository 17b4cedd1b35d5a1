// SPDX-License-Identifier: Apache-2.0
// The exporter's server: /metrics, /health and a small index over HTTP (libmicrohttpd, one thread of its own).
// Answers come from memory; a slow client costs a connection for ten seconds at most, and there are 64.
#ifndef HN_FLEET_EXPORTER_H
#define HN_FLEET_EXPORTER_H
#include "fleet/page.h"

typedef struct hn_exporter hn_exporter;
// listen: "HOST:PORT" with a numeric address ("127.0.0.1:9400", "[::1]:9400"), ":PORT" for all addresses; port 0
// takes a free one. The page is borrowed and the server's alone until hn_exporter_stop. HONE_ERR_USAGE for a bad address,
// HONE_ERR_IO where it cannot be had, HONE_ERR_UNSUPPORTED without libmicrohttpd.
hn_status hn_exporter_start(hone_error *err, hn_page *page, const char *listen, hn_exporter **out_exporter);
void hn_exporter_stop(hn_exporter *exporter); // takes NULL
// Where it listens, with the port it got: "127.0.0.1:9400".
const char *hn_exporter_address(const hn_exporter *exporter);
bool hn_exporter_is_local(const hn_exporter *exporter); // loopback only
#endif
