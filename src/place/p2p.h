// SPDX-License-Identifier: Apache-2.0
// Does peer-to-peer work? A topology matrix cannot say: with ACS or an IOMMU in the way, copies
// between cards arrive wrong, never arrive, or crawl, and the matrix looks healthy.
//
// Every ordered pair of cards copies a pattern and compares it byte for byte, then is timed alone and
// against the traffic back. The copies run in a child process with a deadline a step: a pair that
// stalls takes its process with it, and the next pair starts in a new one. This process never touches
// the driver.
#ifndef HN_PLACE_P2P_H
#define HN_PLACE_P2P_H
#include "place/machine.h"

typedef enum hn_p2p_verdict {
    HN_P2P_OK,
    HN_P2P_NO_ACCESS, // the driver allows none: data was staged through the host, and arrived
    HN_P2P_SLOW,      // right, and far below what the link gives to copies of this size
    HN_P2P_FAILED,    // the driver refused or lost a call
    HN_P2P_CORRUPT,   // other bytes arrived than were sent
    HN_P2P_STALLED,   // did not end in time
} hn_p2p_verdict;

typedef struct hn_p2p_pair {
    int from, to; // positions in report.cards
    hn_p2p_verdict verdict;
    bool access;                // the driver lets the cards reach each other
    double gbs, both_gbs;       // one way alone; this way while the other runs too; < 0 not measured
    double back_gbs;            // one way alone in the other direction; <= 0 not measured
    bool one_sided;             // slow against the other direction
    double ceiling_gbs;         // of the link's class, < 0 unknown
    const char *link;           // "NV18", "PIX"; NULL unknown
    int64_t wrong, first_wrong; // bytes that differ, offset of the first (-1)
    int result;                 // the driver's, 0 none
    const char *step;           // what was under way when it failed or stalled
} hn_p2p_pair;

typedef struct hn_p2p_card {
    int index;
    char name[96], pci[32];
} hn_p2p_card;

typedef struct hn_p2p_report {
    hn_arena arena;
    HN_VEC(hn_p2p_card) cards;
    HN_VEC(hn_p2p_pair) pairs;
    int64_t bytes;      // of one copy
    bool fault;         // a pair is worse than HN_P2P_NO_ACCESS, or NVLink without access
    const char *note;   // on the topology that was given, NULL if it fits
    bool left_behind;   // a process of ours hangs in the driver and cannot be ended
} hn_p2p_report;

typedef struct hn_p2p_options {
    int64_t bytes;    // of one copy; 0: 64 MiB
    double timeout_s; // of one step of a pair; 0: 20. Starting the driver may take six times as long
    bool topology_given; // the machine is of a file: say so where cards are not in it
} hn_p2p_options;

// HONE_ERR_UNSUPPORTED without driver, or with less than two cards. `machine` may be NULL or of another
// count of cards: then links and ceilings are unknown.
hn_status hn_p2p_run(hone_error *err, const hn_p2p_options *options, const hn_place_machine *machine,
                     hn_p2p_report *out_report);
void hn_p2p_report_free(hn_p2p_report *report);
void hn_p2p_text(const hn_p2p_report *report, hn_str *out);
hn_status hn_p2p_json(hone_error *err, const hn_p2p_report *report, hn_str *out);
const char *hn_p2p_verdict_name(hn_p2p_verdict verdict);
#endif
